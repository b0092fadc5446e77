"""Saved agents: one safetensors file of arrays, with everything else as JSON in its header.

Loading such a file reads numbers and text; it cannot execute code. All content is validated before
it is used: `load` checks the file itself, and `restored`, `check_like`, `check_optimizer` and
`check_generator` compare its content with the state of the agent that loads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from crawl_env import Sources
from crawl_env.errors import brief
from crawl_env.files.atomic import atomic_file
from crawl_env.files.regular import regular

_HEADER = "ephemeral-crawl"
_FORMAT = "2"  # 1: hyper-parameters had other names
_MOMENTS = ({"step", "square_avg"}, {"step", "exp_avg", "exp_avg_sq"})  # of RMSprop, of Adam


def save(path: str | PathLike[str], agent: dict[str, Any]) -> None:
    """Write a tree of dictionaries, lists, numbers, text, arrays and fleets atomically.

    Its entry `agent` is the name of the learner.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "agent.safetensors"
    >>> save(path, {"agent": "doubling", "table": np.eye(2)})
    >>> load(path)["agent"], load(path)["table"][1].tolist()
    ('doubling', [0.0, 1.0])
    """
    arrays: dict[str, NDArray[Any]] = {}
    content = json.dumps(_packed(agent, arrays))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as new:
        save_file(arrays, new, metadata={_HEADER: content, "format": _FORMAT})


def load(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the content of a file that `save` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, was not written by `save`, or has an older format.
    """
    regular(path)
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata()
            content, version = metadata[_HEADER], metadata.get("format", "1")
            if version == _FORMAT:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if version != _FORMAT:
            raise ValueError(
                f"format {version!r} of another version of this project, whose hyper-parameters "
                f"have other names; this version reads format {_FORMAT!r}: train the agent again"
            )
        used: set[str] = set()
        agent: dict[str, Any] = _unpacked(json.loads(content), arrays, used)
        if used != set(arrays):
            raise ValueError(f"unused arrays: {sorted(set(arrays) - used)[:3]}")
        if not isinstance(agent["agent"], str):
            raise ValueError("the name of the agent is not text")
    except (
        *(SafetensorError, ValueError, LookupError, TypeError, AttributeError, OverflowError),
        *(MemoryError, RecursionError, OSError),
    ) as error:
        raise ValueError(
            f"{path} is damaged, or was not written by an agent's `save`: {_reason(error)}"
        ) from None
    return agent


def plain(tree: Any) -> Any:
    """Return a tree of numbers and text as `load` would return it.

    >>> plain({"hidden": (16, 32)})
    {'hidden': [16, 32]}
    """
    return json.loads(json.dumps(tree, default=np.generic.item))


def tensors(tree: Any) -> Any:
    """Return a tree with its arrays as tensors, as torch's `load_state_dict` expects."""
    if isinstance(tree, dict):
        return {key: tensors(child) for key, child in tree.items()}
    if isinstance(tree, list):
        return [tensors(child) for child in tree]
    return torch.from_numpy(tree.copy()) if isinstance(tree, np.ndarray) else tree


def elements(tree: Any) -> int:
    """Return the number of elements of all arrays in a tree."""
    if isinstance(tree, dict | list):
        children = tree.values() if isinstance(tree, dict) else tree
        return sum(elements(child) for child in children)
    return tree.size if isinstance(tree, np.ndarray) else 0


def is_finite(tree: Any) -> bool:
    """Return whether all numbers of a tree, also of the arrays and tensors in it, are finite."""
    if isinstance(tree, dict | list):
        return all(map(is_finite, tree.values() if isinstance(tree, dict) else tree))
    if isinstance(tree, torch.Tensor):
        return bool(tree.isfinite().all())
    if isinstance(tree, float | np.ndarray):
        return np.asarray(tree).dtype.kind != "f" or bool(np.isfinite(tree).all())
    return True


def check_like(
    saved: Any, own: Any, name: str, *, low: float = -math.inf, cells: int | None = None
) -> None:
    """Raise ValueError unless a loaded tree has the structure of an agent's own.

    Dictionaries must have the same keys, lists the same lengths, arrays the same type and shape;
    numbers must be finite, and whole numbers not negative.

    Arguments:
        saved: what `load` returned, or a part of it.
        own: the same part of a newly created agent.
        name: name of the part, for messages.
        low: lower bound of the elements of arrays.
        cells: number of sources in all copies of an environment, if `saved` is its state. Lists of
            arrays in it are tables of items or crawls: their columns may be missing or have another
            length, but all the same one, and the first has numbers of sources. Elements of arrays
            may be infinite.

    >>> check_like({"table": np.zeros((2, 3))}, {"table": np.zeros((3, 2))}, "learnt")
    Traceback (most recent call last):
    ...
    ValueError: learnt.table has shape (2, 3); it must be (3, 2)
    """
    if isinstance(own, torch.Tensor):
        own = own.detach().cpu().numpy()
    if isinstance(own, Sources):
        if not isinstance(saved, type(own)):
            raise ValueError(f"{name} is {_kind(saved)}; it must be a fleet")
    elif isinstance(own, dict):
        check_keys(saved, own, name)
        for key, child in own.items():
            negative = key in ("account", "balance")  # a balance may be overdrawn
            bound = -math.inf if negative else low
            check_like(saved[key], child, f"{name}.{key}", low=bound, cells=cells)
    elif isinstance(own, list | tuple):
        if not isinstance(saved, list) or len(saved) != len(own):
            raise ValueError(f"{name} is {_kind(saved)}; it must be a list of {len(own)}")
        table = cells is not None and any(isinstance(child, np.ndarray) for child in own)
        length = len(saved[0]) if table and np.ndim(saved[0]) else 0
        for i, (child, its) in enumerate(zip(saved, own, strict=True)):
            if table and i > 0 and child is None:
                continue
            if table:  # a column missing in `own` may have any type
                types = child.dtype if isinstance(child, np.ndarray) else np.float64
                its = np.empty(length, types if its is None else its.dtype)
            check_like(child, its, f"{name}[{i}]", low=low, cells=cells)
            if table and i == 0 and length and child.max() >= (cells or 0):
                raise ValueError(f"{name}[0] holds {child.max()}; there are {cells} sources")
    elif isinstance(own, np.ndarray):
        _check_array(saved, own, name, low, cells is not None)
    else:
        _check_number(saved, own, name, low)


def state_of(part: Any) -> Any:
    """Return the state of a part of an agent: of a module, an optimizer or another object with
    `state_dict` what that returns, and of anything else itself."""
    return part.state_dict() if hasattr(part, "state_dict") else part


def restored(part: Any, saved: Any, name: str, low: float = -math.inf) -> Any:
    """Return a part of an agent with a loaded state, after validating that: a module, an optimizer
    or another object with `load_state_dict` itself, and of anything else a new value.

    Raises:
        ValueError: an array or a number has another type, shape or range than in `part`.
    """
    if isinstance(part, torch.optim.Optimizer):
        check_optimizer(saved, part, name)
        part.load_state_dict(tensors(saved))
    elif isinstance(part, torch.nn.Module):
        check_like(saved, part.state_dict(), name)
        part.load_state_dict(tensors(saved))
    elif hasattr(part, "load_state_dict"):
        part.load_state_dict(saved)
    else:
        check_like(saved, part, name, low=low)
        return deepcopy(saved)
    return part


def check_keys(saved: Any, own: Collection[Any], name: str) -> None:
    """Raise ValueError unless a loaded dictionary has the keys of an agent's own."""
    if not isinstance(saved, dict):
        raise ValueError(f"{name} is {_kind(saved)}; it must be a dictionary")
    for missing in (key for key in own if key not in saved):
        raise ValueError(f"{name} lacks {missing!r}")
    for extra in (key for key in saved if key not in own):
        raise ValueError(f"{name} has {extra!r}, which this agent does not have")


def check_generator(saved: Any, own: Any, name: str) -> None:
    """Raise ValueError unless a loaded state of a random generator fits, in numpy's form."""
    check_like(saved, own, name)
    if saved["bit_generator"] != own["bit_generator"]:
        raise ValueError(
            f"{name} is of {saved['bit_generator']}; it must be {own['bit_generator']}"
        )
    if saved["state"].get("pos", 0) > 624:  # of the Mersenne twister
        raise ValueError(f"{name} is at position {saved['state']['pos']}; there are 624")


def check_optimizer(saved: Any, optimizer: torch.optim.Optimizer, name: str) -> None:
    """Raise ValueError unless a loaded state fits an optimizer, which torch itself does not check.

    A fused optimizer accesses as many elements of each moment as its parameter has, whatever the
    moment's own size.
    """
    own = optimizer.state_dict()
    check_keys(saved, own, name)
    check_like(saved["param_groups"], plain(own["param_groups"]), f"{name}.param_groups")
    for group, its in zip(saved["param_groups"], plain(own["param_groups"]), strict=True):
        for key in its:
            if key != "lr" and group[key] != its[key]:
                raise ValueError(f"{name}: {key} is {group[key]!r}; it must be {its[key]!r}")
    parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
    names = _MOMENTS[isinstance(optimizer, torch.optim.Adam)]
    if not isinstance(saved["state"], dict):
        raise ValueError(f"{name}.state is {_kind(saved['state'])}; it must be a dictionary")
    for number, moments in saved["state"].items():
        where = f"{name}.state.{number}"
        if not (type(number) is int and 0 <= number < len(parameters)):
            raise ValueError(f"{where}: there are {len(parameters)} parameters")
        check_keys(moments, names, where)
        own = parameters[number].detach().cpu().numpy()
        for what, value in moments.items():
            at = f"{where}.{what}"
            if what != "step":
                _check_array(value, own, at, -math.inf if what == "exp_avg" else 0.0, False)
            elif isinstance(value, np.ndarray):
                _check_array(value, np.zeros((), np.float32), at, 0.0, False)
            else:
                _check_number(value, 0, at, 0.0)


def _check_array(saved: Any, own: NDArray[Any], name: str, low: float, infinite: bool) -> None:
    if not isinstance(saved, np.ndarray):
        raise ValueError(f"{name} is {_kind(saved)}; it must be an array")
    if saved.dtype != own.dtype:
        raise ValueError(f"{name} is of type {saved.dtype}; it must be {own.dtype}")
    if saved.shape != own.shape:
        raise ValueError(f"{name} has shape {saved.shape}; it must be {own.shape}")
    wrong = np.isnan(saved) if infinite and saved.dtype.kind == "f" else ~np.isfinite(saved)
    if wrong.any():
        raise ValueError(f"{name} holds {saved[wrong].flat[0]}; its numbers must be finite")
    if saved.size and saved.dtype.kind != "b" and saved.min() < low:
        raise ValueError(f"{name} holds {saved.min()}; its numbers must be at least {low:g}")


def _check_number(saved: Any, own: Any, name: str, low: float) -> None:
    if own is None or isinstance(own, bool | str):
        if type(saved) is not type(own):
            raise ValueError(f"{name} is {_kind(saved)}; it must be {_kind(own)}")
    elif isinstance(own, int):
        if type(saved) is not int or saved < 0:
            raise ValueError(f"{name} is {_kind(saved)}; it must be a whole number, at least 0")
    elif not (type(saved) in (int, float) and math.isfinite(saved)):
        raise ValueError(f"{name} is {_kind(saved)}; it must be a finite number")
    elif saved < low:
        raise ValueError(f"{name} is {saved}; it must be at least {low:g}")


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, dict | list):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, ValueError) else brief(repr(error))


def _packed(node: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return a node as JSON, with its arrays moved to `arrays`."""
    if isinstance(node, Sources):
        return {"fleet": _packed(node.__getstate__(), arrays)}
    if isinstance(node, dict):
        return {"dict": [[_packed(k, arrays), _packed(v, arrays)] for k, v in node.items()]}
    if isinstance(node, list | tuple):
        return {"list": [_packed(child, arrays) for child in node]}
    if isinstance(node, torch.Tensor):
        node = node.detach().cpu().numpy()
    if isinstance(node, np.ndarray):
        name = str(len(arrays))
        arrays[name] = np.ascontiguousarray(node)
        return {"array": name, "shape": list(node.shape)}
    if isinstance(node, np.generic):
        return node.item()
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise TypeError(f"{type(node).__name__} cannot be saved; give numbers, text and arrays")


def _unpacked(node: Any, arrays: dict[str, NDArray[Any]], used: set[str]) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, content), *rest) = node.items()
    if kind == "fleet":
        return Sources(**_unpacked(content, arrays, used))
    if kind == "dict":
        return {_unpacked(k, arrays, used): _unpacked(v, arrays, used) for k, v in content}
    if kind == "list":
        return [_unpacked(child, arrays, used) for child in content]
    if kind != "array" or content in used:
        raise ValueError(f"an array used twice, or a node of unknown kind: {kind!r}, {content!r}")
    used.add(content)
    array, shape = arrays[content], rest[0][1]
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"the shape {shape} of an array")
    if math.prod(shape) != array.size:
        raise ValueError(f"an array of {array.size} numbers where shape {shape} was saved")
    return array.reshape(shape)
