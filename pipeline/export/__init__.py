"""Writes a version as Parquet, WebDataset, JSON Lines or a folder of images, and the spec that reads it again."""
