"""Worker processes that make batches over shared memory."""
