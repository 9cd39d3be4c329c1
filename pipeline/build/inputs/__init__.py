"""The sources' files as they are now, and as the live version remembers them."""
