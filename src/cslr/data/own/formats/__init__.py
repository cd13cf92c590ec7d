"""CSV, JSON lines, CoNLL and Parquet, one file each."""
