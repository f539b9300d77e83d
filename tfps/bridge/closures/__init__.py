"""The queue of scheduled functions, and what happens when a worker fails."""
