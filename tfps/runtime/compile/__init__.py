"""Puts the halves of a program together: one of `fit`, and a scheduled function."""
