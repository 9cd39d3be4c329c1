"""Finds, counts and resolves rows of equal content, and images that look alike."""
