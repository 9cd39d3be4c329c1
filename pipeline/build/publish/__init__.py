"""The files of a version."""
