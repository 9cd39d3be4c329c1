"""The arguments of an input, checked, and what its batches look like."""
