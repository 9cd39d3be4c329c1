"""JSON Lines files."""
