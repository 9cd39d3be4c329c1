"""Texts on their way to the graph."""
