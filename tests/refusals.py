"""What is refused, and with which words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused(*parts: str) -> Iterator[None]:
    """Assert that the block raises a ValueError whose message holds all parts."""
    with pytest.raises(ValueError, match=re.escape(parts[0])) as error:
        yield
    for part in parts:
        assert part in str(error.value)
