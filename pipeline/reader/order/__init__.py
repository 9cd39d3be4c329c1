"""Which record comes at which position of which epoch."""
