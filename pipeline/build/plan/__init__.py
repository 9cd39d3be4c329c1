"""Plans of builds: spans, keys, chunks and the layout."""
