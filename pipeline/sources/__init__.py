"""Sources of rows: formats that plan chunks and read them as Arrow rows."""
