"""Functions with which a parameter server replies to requests."""
