"""Serialized tf.train.Examples to columns, without protobuf."""
