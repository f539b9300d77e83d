"""Restarts of tasks: which are started again, and how often."""
