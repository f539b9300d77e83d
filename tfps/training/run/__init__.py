"""A run of tickets: its closures, its progress and its checkpoints."""
