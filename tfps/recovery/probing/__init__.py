"""The question whether a task is alive, and which start of it is."""
