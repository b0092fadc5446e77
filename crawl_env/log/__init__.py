"""Recorded content: items, how their utility decayed, and reading them."""
