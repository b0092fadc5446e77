"""Index policies on the reference tasks."""
