"""Files: tables as CSV, gzipped CSV or Parquet, and atomic writing."""
