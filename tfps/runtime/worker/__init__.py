"""Functions that a worker traces: copies of parameters, steps, the loop, pulls and pushes."""
