"""The record of a job: what its chief counts, and what its tasks use, once a second."""
