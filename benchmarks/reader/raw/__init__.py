"""Pictures of 224×224 stored as pixels, to batches of the same pixels."""
