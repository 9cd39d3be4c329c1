"""Shows a version to people: `report.html`, previews, and what notebooks display."""
