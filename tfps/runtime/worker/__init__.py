"""What a worker traces: its copies of parameters, its steps, its loop, pulls and pushes."""
