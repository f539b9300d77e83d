"""What the coordinator holds of a job: servers, variables, membership and its control channels."""
