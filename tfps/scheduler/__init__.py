"""The scheduler: it gives tasks that know one address their places, and tells them the cluster."""
