"""What a step touches, and how it runs."""
