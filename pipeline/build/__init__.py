"""One build: planned, run, reconciled, published."""
