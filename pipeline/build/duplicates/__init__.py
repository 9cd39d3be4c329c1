"""Rows of equal content and images that look alike: found, counted, decided on."""
