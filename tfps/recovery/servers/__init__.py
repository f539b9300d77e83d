"""The return of a lost server, and of its variables."""
