"""Import and export of the sources of a live scheduler."""
