"""Converts values of any format to the type that a column asks for."""
