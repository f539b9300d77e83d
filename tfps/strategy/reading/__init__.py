"""The counters and variables of a job, read by its chief or by another process."""
