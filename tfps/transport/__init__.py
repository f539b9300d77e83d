"""Moves bytes between tasks: layouts, packing, messages, and carriers that send them to servers."""
