"""Fault tolerance: finds the tasks that do not reply, and recovers their work."""
