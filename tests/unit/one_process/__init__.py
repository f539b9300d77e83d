"""A package, so that what its tests share ends with it, before others connect to a cluster."""
