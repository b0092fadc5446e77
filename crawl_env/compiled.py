"""Compilation of inner loops to machine code with numba.

A function is compiled when it is first called with arguments of new types, and the machine code is
cached on disk: in the folder that the environment variable `NUMBA_CACHE_DIR` names, which several
checkouts may share, else next to the source file or, where this is read-only, in the user's cache
folder. If none can be written, it is compiled once per process. `NUMBA_DISABLE_JIT=1` runs the same
functions as plain Python.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, cached_property, wraps
from hashlib import sha256
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache

# What reading an index of cached machine code raises if it was cut off, or if it names a class that
# an upgrade has moved.
_UNREADABLE = (ImportError, AttributeError, EOFError, UnpicklingError)

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Return the function compiled by numba, without the global interpreter lock.

    Divisions by zero follow IEEE 754 instead of raising. Nothing is checked: whoever calls a
    compiled function ensures that shapes, types and indices are right.

    >>> @compiled
    ... def double(x: float) -> float:
    ...     return 2.0 * x
    >>> double(1.5)
    3.0
    """
    return _compile(function, {})


def inlined(function: Function) -> Function:
    """Return the function compiled as by `compiled`, for calls from other compiled functions only.

    Its machine code becomes part of its callers'. In an inner loop that saves 5 to 10 ns for each
    array among the arguments, whose references would be counted at every call.
    """
    return _compile(function, {"forceinline": True})


def _compile(function: Function, options: dict[str, Any]) -> Function:
    # numpy would warn where machine code goes on, as of overflow.
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return _interpreted(function)
    options = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, **options}
    dispatcher: Any = numba.njit(**options)(function)
    with suppress(OSError):  # it was not defined in a file
        dispatcher._cache = _Cache(dispatcher)
    _widen_literals(dispatcher)
    result: Function = dispatcher
    return result


def _interpreted(function: Function) -> Function:
    """Return the function as plain Python, in which columns of records are attributes, too."""

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        keywords = {name: _with_attributes(value) for name, value in keywords.items()}
        with np.errstate(all="ignore"):
            return function(*map(_with_attributes, args), **keywords)

    result: Any = call
    return cast(Function, result)


def _with_attributes(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.view(np.recarray) if value.dtype.names else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_with_attributes, value))
    return value


@cache
def _contents(path: str, modified: int, size: int) -> bytes:
    """Return the hash of a source file, which is read again if it seems to have changed."""
    return sha256(Path(path).read_bytes()).digest()


class _Cache:
    """The cached machine code of a function, which is looked for when it is first needed: to look
    for that of all functions takes as long as to import them.

    It depends on the files of the functions that it calls, and on the global constants that these
    use, since it contains them; numba itself recompiles only if the file of the function itself has
    changed. It is compiled again if the cache cannot be read, and is not kept if it cannot be
    written, as on a full disk.
    """

    def __init__(self, dispatcher: Any) -> None:
        path = dispatcher.py_func.__code__.co_filename
        file = os.stat(path)
        self._dispatcher = dispatcher
        self.contents = _contents(path, file.st_mtime_ns, file.st_size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    @cached_property
    def _cache(self) -> Any:
        try:
            cache: Any = FunctionCache(self._dispatcher.py_func)  # type: ignore[no-untyped-call]
        except RuntimeError:  # no folder for the cache can be written
            return NullCache()
        stamp = sha256()
        for part in sorted(set(_parts(self._dispatcher, set()))):
            stamp.update(part)
        cache._cache_file._source_stamp = stamp.digest()
        if numba.config.CACHE_DIR:  # type: ignore[attr-defined]
            cache._cache_file = self._shared_file(cache._impl.filename_base, stamp.digest())
        _tolerate_failures(cache._cache_file)
        return cache

    def _shared_file(self, name: str, stamp: bytes) -> Any:
        """Return a file that is named by what the machine code is made of, not by where the source
        file lies: equal checkouts find each other's, and others do not overwrite it."""
        folder = f"{numba.config.CACHE_DIR}/numba-{numba.__version__}"  # type: ignore[attr-defined]
        with suppress(OSError):  # then nothing is kept
            os.makedirs(folder, exist_ok=True)
        key = sha256(stamp + self._dispatcher.py_func.__module__.encode()).hexdigest()[:16]
        return IndexDataCacheFile(folder, f"{name}-{key}", stamp)  # type: ignore[no-untyped-call]


def _widen_literals(dispatcher: Any) -> None:
    """Compile one version of a function for all integers, where numba would compile another one
    for each constant with which it is called."""
    template = dispatcher.get_call_template
    widen: Callable[[Any], Any] = types.unliteral

    def of_any(args: Any, kws: Any) -> Any:
        keywords = {name: widen(kind) for name, kind in kws.items()}
        return template(tuple(map(widen, args)), keywords)

    dispatcher.get_call_template = of_any


def _tolerate_failures(file: Any) -> None:
    load, save = file._load_index, file.save

    def load_index() -> Any:
        try:
            return load()
        except _UNREADABLE:
            return {}

    def save_if_possible(key: Any, data: Any) -> None:
        with suppress(OSError):
            save(key, data)

    file._load_index, file.save = load_index, save_if_possible


def _parts(dispatcher: Any, seen: set[int]) -> Iterator[bytes]:
    """Yield hashes of what the machine code of a function consists of: the source files of it and
    of all that it calls, and the values of their global constants."""
    function = dispatcher.py_func
    if id(function) in seen:
        return
    seen.add(id(function))
    if isinstance(dispatcher._cache, _Cache):
        yield dispatcher._cache.contents
    names = function.__code__.co_names
    for name in names:
        entry = function.__globals__.get(name)
        # Globals are used by their names, or as attributes of a module.
        values = [getattr(entry, of, None) for of in names] if inspect.ismodule(entry) else [entry]
        for value in values:
            if hasattr(value, "py_func"):
                yield from _parts(value, seen)
            elif isinstance(value, np.ndarray):
                yield sha256(name.encode() + value.tobytes()).digest()
            elif isinstance(value, int | float | str | tuple):
                yield sha256(f"{name} {value!r}".encode()).digest()
