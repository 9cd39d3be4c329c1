"""Compares two versions: the figures that the gate limits, that `recordmill diff` lists, and that a build quotes."""
