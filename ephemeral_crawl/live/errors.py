"""Errors of the live scheduler that callers may want to tell from other invalid arguments."""

from __future__ import annotations


class UnknownSource(ValueError):
    """There is no source of this name."""


class UnknownLease(ValueError):
    """There was no lease of this number."""


class SourceExists(ValueError):
    """There is a source of this name."""


class NewStore(ValueError):
    """There is no scheduler in the store, and no budget for a new one."""
