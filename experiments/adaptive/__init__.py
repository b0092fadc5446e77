"""Crawling while learning: what it costs, when it fails, what it needs to see, and drift."""
