"""Fashion-MNIST, the reference job: its data and its models, with plain Keras 3."""
