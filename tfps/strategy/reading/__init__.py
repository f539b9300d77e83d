"""Counts and states of a job, read by its chief or by another process."""
