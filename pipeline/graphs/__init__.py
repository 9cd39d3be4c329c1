"""The graphs of a version, as bytes: what they hold, and whether TensorFlow may load them."""
