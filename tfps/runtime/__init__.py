"""One job at work: composes the servers' functions and the workers' loop, and owns their state."""
