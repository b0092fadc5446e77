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


class DamagedStore(ValueError):
    """What is in the store is not what was written."""


class StoreLocked(TimeoutError):
    """Another process changes the store, and takes longer than one is willing to wait.

    Attributes:
        store: its name.
    """

    def __init__(self, store: str, patience: float) -> None:
        super().__init__(
            f"{store} is locked by another process for more than {patience:g} s; nothing was "
            "changed. Try again"
        )
        self.store = store
