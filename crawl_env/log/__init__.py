"""Recorded content: logs of items and curves of their decay."""
