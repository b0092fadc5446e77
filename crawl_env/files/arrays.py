"""Arrays in files: what each must be is declared, and checked before anything uses it."""

from __future__ import annotations

import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from crawl_env.errors import brief, shown
from crawl_env.files.regular import regular

_INF = math.inf
_HOLDS = {  # kinds of dtype that are converted to a kind, and what they hold
    "f": ("fiu", "numbers"),
    "i": ("iu", "whole numbers"),
    "u": ("iu", "whole numbers"),
    "b": ("b", "True or False"),
    "U": ("U", "text"),
}
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_DAMAGED = (
    *(ValueError, LookupError, TypeError, EOFError, RuntimeError, OverflowError, MemoryError),
    *(OSError, struct.error, zipfile.BadZipFile, zlib.error),
    *(SyntaxError, tokenize.TokenError),  # of headers, which numpy parses as Python
)


class Array(NamedTuple):
    """The requirements on an array.

    Numbers are finite. The lengths of axes that have the same name are equal in all arrays that are
    checked together.
    """

    dtype: DTypeLike  # to which numbers are converted; whole numbers only from whole numbers
    shape: tuple[int | str, ...] = ()
    low: float | tuple[float, ...] = -_INF  # least element, or that of each column
    high: float | tuple[float, ...] = _INF  # largest element, or that of each column
    ascending: bool = False  # every element is larger than the one before
    unique: bool = False  # no element, or none of the first column, appears twice
    or_empty: bool = False  # its length may be 0 instead
    or_nan: bool = False  # elements may be NaN
    unread: bool = False  # its elements are neither checked nor converted, but by whoever uses them


def check_arrays(
    given: Mapping[str, Any], declared: Mapping[str, Array], **lengths: int
) -> dict[str, NDArray[Any]]:
    """Return the declared arrays in their types; they are copies only where the type differs.

    Arguments:
        lengths: of axes, by name.

    Raises:
        ValueError: an array is missing, or is not as declared.

    >>> crawls = {"source": Array(np.uint32, ("K",), 0, 9), "age": Array(float, ("K",), 0)}
    >>> check_arrays({"source": [3, 7], "age": [0.5]}, crawls)
    Traceback (most recent call last):
    ...
    ValueError: age has shape (1,); it must have shape (2,), as source has
    """
    lacking = [name for name in declared if name not in given]
    if lacking:
        raise ValueError(f"{', '.join(lacking)} {'are' if len(lacking) > 1 else 'is'} missing")
    sizes = {axis: (length, "") for axis, length in lengths.items()}
    return {name: _checked(name, given[name], array, sizes) for name, array in declared.items()}


def _checked(
    name: str, value: Any, declared: Array, sizes: dict[str, tuple[int, str]]
) -> NDArray[Any]:
    dtype = np.dtype(declared.dtype)
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{name} is no array: {brief(error)}") from None
    kinds, content = _HOLDS[dtype.kind]
    if array.dtype.kind not in kinds:
        raise ValueError(f"{name} has dtype {brief(array.dtype)}; it must hold {content}")
    if not (declared.or_empty and array.shape == (0,)):
        _check_shape(name, array, declared, sizes)
    if declared.unread or dtype.kind == "U":
        return array
    if dtype.kind != "b":
        _check_numbers(name, array, declared, dtype)
    with np.errstate(under="ignore"):
        return array.astype(dtype, copy=False)


def _check_shape(
    name: str, array: NDArray[Any], declared: Array, sizes: dict[str, tuple[int, str]]
) -> None:
    if array.ndim == len(declared.shape):
        for axis, length in zip(declared.shape, array.shape, strict=True):
            if isinstance(axis, str):
                sizes.setdefault(axis, (length, name))
    expected = [sizes.get(str(axis), (axis, "")) for axis in declared.shape]
    if array.shape != tuple(length for length, _ in expected):
        others = [other for _, other in expected if other not in ("", name)]
        shape = ", ".join(str(length) for length, _ in expected) + "," * (len(expected) == 1)
        like = f", as {others[0]} has" if others else ""
        raise ValueError(f"{name} has shape {array.shape}; it must have shape ({shape}){like}")


def _check_numbers(name: str, array: NDArray[Any], declared: Array, dtype: np.dtype[Any]) -> None:
    whole = dtype.kind != "f"
    least, most = _limits(dtype)
    if array.dtype.kind == "f":  # with which numbers are compared in its own precision
        least, most = max(least, _limits(array.dtype)[0]), min(most, _limits(array.dtype)[1])
    table = array if array.ndim == 2 else array.reshape(-1, 1)
    for j, column in enumerate(table.T):
        low, high = max(_of_column(declared.low, j), least), min(_of_column(declared.high, j), most)
        fine = (column >= low) & (column <= high)
        if declared.or_nan and column.dtype.kind == "f":
            fine |= np.isnan(column)
        if not fine.all():
            i = int(np.argmin(fine))
            at = f" at {i}" if array.ndim else ""
            bounds = (
                f"at least {low if whole else format(low, 'g')}" * (low > least or whole),
                f"at most {high if whole else format(high, 'g')}" * (high < most),
            )
            condition = " and ".join(filter(None, ("" if whole else "finite", *bounds)))
            raise ValueError(f"{name} is {shown(column[i])}{at}; it must be {condition}")
    first = table[:, 0] if table.shape[1] else table.reshape(-1)
    ordered = first if declared.ascending else np.sort(first) if declared.unique else first[:0]
    wrong = ordered[1:] <= ordered[:-1]
    if wrong.any():
        what = "is not ascending" if declared.ascending else "has a number twice"
        raise ValueError(f"{name} {what}: {shown(ordered[1:][wrong][0])}")


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind == "f":
        return float(np.finfo(dtype).min), float(np.finfo(dtype).max)
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def _of_column(bound: float | tuple[float, ...], j: int) -> float:
    return bound[j] if isinstance(bound, tuple) else bound


@contextmanager
def blamed(what: str | PathLike[str], remedy: str) -> Iterator[None]:
    """Say in errors of values what they are found in, and what to do."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{what}: {error}; {remedy}") from None


def read_archive(path: str | PathLike[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a NumPy archive (.npz) as `numpy.savez` writes it, without objects.

    No more memory is taken than the file has bytes, whatever shapes its arrays claim to have.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such an archive, or damaged.
    """
    arrays: dict[str, NDArray[Any]] = {}
    with open(regular(path), "rb") as raw:
        name = "it"
        try:
            with zipfile.ZipFile(raw) as archive:
                members = archive.infolist()
                _check_sizes(members, os.fstat(raw.fileno()).st_size)
                for member in members:
                    name = brief(member.filename.removesuffix(".npy"))
                    with archive.open(member) as stream:
                        shape, _, dtype = _HEADERS[npy.read_magic(stream)](stream)
                        if dtype.hasobject:
                            raise ValueError("it holds Python objects")
                        size = member.file_size - stream.tell()
                        if math.prod(shape) * dtype.itemsize != size:
                            raise ValueError(f"it has {size} bytes, and the shape {shape}")
                        stream.seek(0)
                        arrays[name] = npy.read_array(stream, allow_pickle=False)
        except _DAMAGED as error:
            raise ValueError(
                f"{path} is damaged, or not an archive of arrays: {name} cannot be read "
                f"({brief(error)})"
            ) from None
    return arrays


def _check_sizes(members: Sequence[zipfile.ZipInfo], size: int) -> None:
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("it is compressed")
    if sum(member.file_size for member in members) > size:
        raise ValueError("its parts are larger than the file")
    if len({member.filename for member in members}) < len(members):
        raise ValueError("it has two parts of one name")


def map_array(path: str | PathLike[str]) -> NDArray[Any]:
    """Return the array of a file in NumPy's format (.npy), mapped and read-only.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, or damaged.
    """
    path = regular(path)
    try:
        return npy.open_memmap(path, mode="r")
    except _DAMAGED as error:
        raise ValueError(f"{path} cannot be read ({brief(error)})") from None
