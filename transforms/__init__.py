"""The transforms from raw to stored and from stored to model-ready, and the contract between them."""
