"""Programs: the variables and optimizer calls of a step, and its schedule."""
