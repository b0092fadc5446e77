"""What studies are made of: rows and what is shown of them, parts, and timings."""
