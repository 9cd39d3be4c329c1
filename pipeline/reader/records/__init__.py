"""Random access to the records of a version, local or remote."""
