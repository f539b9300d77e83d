"""The tasks that are started again, and how often."""
