"""What an agent has learnt, as one file: safetensors, with all that is no array as JSON inside.

Loading such a file reads numbers and text; it cannot run code.
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from crawl_env import Sources

_HEADER = "ephemeral-crawl"


def save(path: str | PathLike[str], agent: dict[str, Any]) -> None:
    """Write a tree of dictionaries, lists, numbers, text, arrays and fleets.

    It names the kind of `agent`. The file appears whole or not at all.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "agent.safetensors"
    >>> save(path, {"agent": "doubling", "table": np.eye(2)})
    >>> load(path)["agent"], load(path)["table"][1].tolist()
    ('doubling', [0.0, 1.0])
    """
    arrays: dict[str, NDArray[Any]] = {}
    skeleton = json.dumps(_packed(agent, arrays))
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.touch()  # with the user's rights, which `save_file` would narrow to the owner
        rights = partial.stat().st_mode
        save_file(arrays, partial, metadata={_HEADER: skeleton})
        partial.chmod(rights)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def load(path: str | PathLike[str]) -> dict[str, Any]:
    """Return what `save` wrote.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is none of these.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    try:
        with safe_open(path, framework="numpy") as file:
            agent: dict[str, Any] = _unpacked(json.loads(file.metadata()[_HEADER]), file)
            agent["agent"]  # or it is none
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged, or was not written by this project's agents ({error!r}); give a "
            "file that their `save` wrote"
        ) from None
    return agent


def plain(tree: Any) -> Any:
    """Return a tree of numbers and text as `load` would return it.

    >>> plain({"hidden": (16, 32)})
    {'hidden': [16, 32]}
    """
    return json.loads(json.dumps(tree, default=np.generic.item))


def tensors(tree: Any) -> Any:
    """Return a tree with its arrays as tensors, as torch wants its states."""
    if isinstance(tree, dict):
        return {key: tensors(child) for key, child in tree.items()}
    if isinstance(tree, list):
        return [tensors(child) for child in tree]
    return torch.from_numpy(tree.copy()) if isinstance(tree, np.ndarray) else tree


def _packed(node: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return a node as JSON, its arrays put aside."""
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


def _unpacked(node: Any, file: Any) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, content), *rest) = node.items()
    if kind == "fleet":
        return Sources(**_unpacked(content, file))
    if kind == "dict":
        return {_unpacked(key, file): _unpacked(value, file) for key, value in content}
    if kind == "list":
        return [_unpacked(child, file) for child in content]
    return file.get_tensor(content).reshape(rest[0][1])
