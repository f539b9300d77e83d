"""The face: the two public subclasses of TensorFlow's pair."""
