"""The job around the graphs: from raw rows to a published version, and from a version to batches."""
