"""`tfps bench batch`: how large a worker's batch, and how many steps between two exchanges."""
