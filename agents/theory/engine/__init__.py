"""Crawling for an indexing engine: prices, bound, index, exact optimum, and a static problem."""
