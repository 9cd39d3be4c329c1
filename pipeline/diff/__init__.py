"""`recordmill diff`: the changes from one version of a dataset to another."""
