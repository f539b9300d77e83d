"""Rates, logs and lines that a run shows."""
