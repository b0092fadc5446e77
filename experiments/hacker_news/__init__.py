"""A log of items from a public history of the Hacker News front page."""
