"""Attempts at a build; the next one continues finished work."""
