"""Reports added up and reconciled."""
