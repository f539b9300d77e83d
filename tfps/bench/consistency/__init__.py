"""`tfps bench consistency`: the modes against each other, with workers that are slow."""
