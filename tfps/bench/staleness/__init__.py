"""`tfps bench staleness`: which optimizer helps where every gradient is stale."""
