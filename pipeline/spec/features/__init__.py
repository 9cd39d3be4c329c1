"""The options of each kind of feature, without TensorFlow."""
