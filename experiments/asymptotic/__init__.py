"""How the gap to the relaxed bound closes as a fleet is copied."""
