"""`tfps bench scaling`: many workers against one."""
