"""Published versions: stores, the live pointer, leases, listing, pruning."""
