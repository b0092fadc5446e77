"""Policies that plan with known parameters, simple ones, and those of industry."""
