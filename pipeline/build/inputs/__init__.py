"""The sources' files now, and those of the live version."""
