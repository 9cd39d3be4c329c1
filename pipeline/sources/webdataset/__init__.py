"""WebDataset tar files."""
