"""What is stored, and how raw becomes stored becomes model-ready."""
