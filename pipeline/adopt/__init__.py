"""Adoption: TFRecord files of other programs as a version, read in place."""
