"""Tabular learners: one table per source, indexed by the source's age."""
