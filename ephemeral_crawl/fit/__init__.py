"""Fits the model to a log of items, and tests its assumptions."""
