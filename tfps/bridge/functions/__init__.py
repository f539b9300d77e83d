"""Functions of graphs: traced, registered and run on other tasks."""
