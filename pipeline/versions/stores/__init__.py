"""Places that an output may lie in: a local folder, Google Cloud Storage, S3."""
