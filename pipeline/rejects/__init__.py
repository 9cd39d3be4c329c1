"""Rows that did not become records: the reasons, the limits, the published file, and the second look."""
