"""`tfps bench rows`: what servers save that update only the rows of a batch."""
