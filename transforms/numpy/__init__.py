"""Stored to model-ready without TensorFlow."""
