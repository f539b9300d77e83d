"""Messages between workers and servers: layouts, headers of requests and replies."""
