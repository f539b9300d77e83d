"""What travels between a worker and a server: layouts, headers of requests and replies."""
