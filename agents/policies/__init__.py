"""Policies that plan with known parameters, simple baselines, and rules used in practice."""
