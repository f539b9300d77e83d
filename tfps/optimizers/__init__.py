"""How a server applies gradients: any Keras optimizer, on the variables of one server."""
