"""The return of a lost server, and the restoration of its variables."""
