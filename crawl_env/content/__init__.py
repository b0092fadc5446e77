"""Content: how it arrives, what it is worth, how interest in it falls, and what waits."""
