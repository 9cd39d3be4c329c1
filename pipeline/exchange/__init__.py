"""A version in the words of other tools: each file follows from the manifest alone."""
