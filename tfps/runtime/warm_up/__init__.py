"""The first steps of scheduled functions, which each worker takes by itself."""
