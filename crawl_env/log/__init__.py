"""Recorded content: logs of items and their decay curves."""
