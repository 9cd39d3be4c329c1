"""What the workers of a build know, and where they report."""
