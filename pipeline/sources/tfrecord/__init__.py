"""TFRecord files of tf.train.Examples."""
