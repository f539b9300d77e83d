"""Combines the halves of a program: a program of `fit`, or a scheduled function."""
