"""Index policies and learning agents on the reference tasks."""
