"""Agents that learn from interaction alone: the closed-form index is no part of them."""
