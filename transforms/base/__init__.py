"""Descriptions, options, columns and stored parts: shared by every kind."""
