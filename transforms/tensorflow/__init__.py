"""The TensorFlow graphs: one file a kind."""
