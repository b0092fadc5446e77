"""Fleets of sources, their parameters and constraints."""
