"""One job from its file to its results: the only place that puts all parts together."""
