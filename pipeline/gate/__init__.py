"""The gate: compares a version with the live one before it is published, and holds it back where too much moved."""
