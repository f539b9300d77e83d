"""Mending: which tasks still answer, and what becomes of the work of those that do not."""
