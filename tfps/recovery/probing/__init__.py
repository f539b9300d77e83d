"""Probes: whether a task is alive, and which incarnation of it replies."""
