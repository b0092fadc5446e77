"""The fleet: sources, their parameters and constraints."""
