"""Seconds by stage, throughput, and advice on what limits an input."""
