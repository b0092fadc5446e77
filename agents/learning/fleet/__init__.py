"""Learners with one permutation-equivariant network for all sources of all fleets."""
