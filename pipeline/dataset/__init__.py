"""The format on disk: manifest, shards, names, placement. NumPy at most."""
