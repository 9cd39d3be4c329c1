"""Rows of one content, and pictures that look alike: found, counted, left out, kept together."""
