"""The model fitted to a log of items, and what the log says against it."""
