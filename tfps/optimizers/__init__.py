"""How a server applies gradients: any Keras optimizer, restricted to the variables of one server."""
