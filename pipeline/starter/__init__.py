"""`recordmill init`: looks at data, and writes a `dataset.yaml` that builds as it is, with the reasons as comments."""
