"""Stores that hold an output: a local folder, Google Cloud Storage, S3."""
