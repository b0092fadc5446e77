"""Regular files: what is read as a whole is neither a folder nor a pipe nor a device."""

from __future__ import annotations

import os
import stat
from os import PathLike, fspath

from crawl_env.errors import brief, shown

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def regular(path: str | PathLike[str]) -> str:
    """Return the path of a file that can be read more than once and has an end.

    Raises:
        FileNotFoundError: there is no such file.
        PermissionError: a folder on the way to it may not be entered.
        ValueError: it is a folder, a pipe or a device, or the path leads nowhere.

    >>> regular("/")
    Traceback (most recent call last):
    ...
    ValueError: / is a folder; give the path of a file
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, PermissionError):
        raise
    except (OSError, ValueError) as error:  # a loop of links, a name that is too long, …
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(
            f"{shown(fspath(path))} cannot be read: {brief(reason)}; give the path of a file"
        ) from None
    if not stat.S_ISREG(mode):
        kind = next((what for is_kind, what in _KINDS if is_kind(mode)), "a device")
        raise ValueError(f"{path} is {kind}; give the path of a file")
    return fspath(path)
