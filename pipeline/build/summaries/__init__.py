"""Exact, mergeable summaries of the rows: everything that a build must know before it writes them."""
