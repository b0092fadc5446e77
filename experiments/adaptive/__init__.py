"""Adaptive crawling: regret, abandonment, information, drift, computing time and replay."""
