"""Variables on servers and workers that Keras and TensorFlow can use."""
