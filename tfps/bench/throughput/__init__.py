"""`tfps bench throughput`: whole trainings, against TensorFlow's own strategy and one process."""
