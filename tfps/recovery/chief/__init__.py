"""The record of a job, and the chief that takes it over."""
