"""The stored form of features, and the ways from raw to stored to model-ready."""
