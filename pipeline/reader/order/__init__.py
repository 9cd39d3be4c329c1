"""The order of records: steps, positions and permutations."""
