"""The pull and push of a strategy, without Keras."""
