"""The coordinator's part of a job: servers, variables, membership and control channels."""
