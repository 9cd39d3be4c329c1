"""Documents as ids of words, of very different lengths, to batches."""
