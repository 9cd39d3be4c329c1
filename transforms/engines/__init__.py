"""The two engines from stored to model-ready, and the graph from raw to stored."""
