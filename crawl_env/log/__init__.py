"""Recorded content: logs of items, their decay curves, and logs of pings."""
