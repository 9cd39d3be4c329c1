"""Plain text, by lines or by files."""
