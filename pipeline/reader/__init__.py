"""The training input: a published dataset as batches for a model. NumPy; TensorFlow for tf.data alone."""
