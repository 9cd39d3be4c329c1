"""The tf.data form of an input."""
