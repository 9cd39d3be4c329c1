"""Spans: parts of the rows with shards of their own, which a build takes over where nothing of them changed."""
