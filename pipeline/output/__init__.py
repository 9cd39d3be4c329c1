"""Where versions lie: stores, the pointer to the live one, leases, retention."""
