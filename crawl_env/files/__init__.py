"""Files: tables as CSV, gzipped CSV or Parquet, and files that appear whole or not at all."""
