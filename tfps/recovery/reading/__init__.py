"""The state of a running job, read from its servers."""
