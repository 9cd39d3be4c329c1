"""Values: categories, numbers, arrays, raw columns."""
