"""Images by reference: read, checked, decoded in isolation, compared by look."""
