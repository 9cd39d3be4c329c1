"""Exact, mergeable summaries of the rows, for a build to know before it writes them."""
