"""The graphs: raw to stored (tf.Transform), stored to model-ready, and the two composed for serving."""
