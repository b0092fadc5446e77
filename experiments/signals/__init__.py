"""What signals of changes, which may be false or missing, are worth to a crawler."""
