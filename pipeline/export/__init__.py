"""Writes the rows of a version as Parquet or WebDataset."""
