"""A function of the user's as a source, and how the user's code travels to workers."""
