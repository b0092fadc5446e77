"""Errors of the live scheduler that callers may want to tell from other invalid arguments."""

from __future__ import annotations


class UnknownSource(ValueError):
    """No source has this name."""


class UnknownLease(ValueError):
    """No lease with this number was ever given."""


class SourceExists(ValueError):
    """A source with this name exists already."""


class NewStore(ValueError):
    """There is no scheduler in the store, and no budget for a new one."""


class DamagedStore(ValueError):
    """The store does not contain what was written to it."""


class StoreLocked(TimeoutError):
    """Another process is changing the store, and did not finish within the time allowed for it.

    Attributes:
        store: its name.
    """

    def __init__(self, store: str, patience: float) -> None:
        super().__init__(
            f"{store} is locked by another process for more than {patience:g} s; nothing was "
            "changed. Try again"
        )
        self.store = store
