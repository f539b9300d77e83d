"""What a parameter server does with a request."""
