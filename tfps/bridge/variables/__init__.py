"""Variables on servers and workers, as Keras and TensorFlow see them."""
