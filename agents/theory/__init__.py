"""Indices, bounds and optima."""
