"""Reads a version's records for people: chosen by key, class or position, and decoded to plain Python values."""
