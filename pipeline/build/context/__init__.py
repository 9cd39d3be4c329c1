"""The facts that the workers of a build get, and the files that they report in."""
