"""The network of `InContext`: its weights and how they are read."""

from __future__ import annotations

import json
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agents.inference.history import PLUG_IN, Array32, C, F

WEIGHTS = Path(__file__).with_name("in_context.safetensors")
DECAYS = np.geomspace(1 / 27, 27.0, 7)  # (J,) κ, each three times the one before
_AT_ONCE = 1024  # sources, whose numbers stay in the processor's cache


class Network(NamedTuple):
    """The weights: two hidden layers, the first of which also receives the fleet's context, and a
    linear connection in parallel. The outputs are the logarithms of w_j relative to the plug-in
    estimate of u*, for the mean of the index and for its upper quantile."""

    mean: Array32  # (F + C,) of the inputs and of the context
    std: Array32  # (F + C,)
    first: Array32  # (F, H)
    context: Array32  # (C, H)
    bias: Array32  # (H,)
    second: Array32  # (H, H)
    bias_2: Array32  # (H,)
    out: Array32  # (H, 2J)
    linear: Array32  # (F, 2J)
    bias_out: Array32  # (2J,)
    optimism: Array32  # (2,) share of the quantile in the index; β, growth with what is unseen

    def shift(self, context: Array32) -> Array32:
        """Return what the context (B, C) of fleets adds to their first layers, (B, H)."""
        standard = (context - self.mean[F:]) / self.std[F:]
        return np.asarray(np.clip(standard, -8, 8) @ self.context + self.bias)

    def weights(self, inputs: Array32, shift: Array32) -> Array32:
        """Return w of inputs (K, F), given the shifts (K, H) of their fleets, or that of the only
        fleet, (1, H): (K, J)."""
        out = np.empty((len(inputs), len(DECAYS)), dtype=np.float32)
        for at in range(0, len(inputs), _AT_ONCE):
            some = slice(at, at + _AT_ONCE)
            out[some] = self._weights(inputs[some], shift if len(shift) == 1 else shift[some])
        return out

    def _weights(self, inputs: Array32, shift: Array32) -> Array32:
        x = (inputs - self.mean[:F]) / self.std[:F]
        np.clip(x, -8, 8, out=x)
        hidden = x @ self.first
        hidden += shift
        np.maximum(hidden, 0, out=hidden)
        hidden = hidden @ self.second
        hidden += self.bias_2
        np.maximum(hidden, 0, out=hidden)
        out = hidden @ self.out
        out += x @ self.linear
        out += self.bias_out
        out += inputs[:, PLUG_IN, None]
        np.clip(out, -40, 40, out=out)
        np.exp(out, out=out)
        j, c = len(DECAYS), self.optimism[0]
        return np.asarray((1 - c) * out[:, :j] + c * out[:, j:])


def read_network(path: str | PathLike[str]) -> tuple[Network, dict[str, Any]]:
    """Return the weights in a safetensors file, and its description of how they were made.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, or holds no weights of this network.
    """
    content = Path(path).read_bytes()
    try:
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        about = json.loads(header.pop("__metadata__")["in-context"])
        arrays = {
            name: np.frombuffer(
                content[8 + size :][slice(*entry["data_offsets"])], dtype="<f4"
            ).reshape(entry["shape"])
            for name, entry in header.items()
            if entry["dtype"] == "F32"
        }
        network = Network(**arrays)
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(
            f"{path} holds no weights of an in-context agent, or is damaged ({error!r}); give a "
            "file that agents.adaptive.training wrote"
        ) from None
    hidden = len(network.bias)
    outputs = 2 * len(DECAYS)
    shapes = ((F + C,), (F + C,), (F, hidden), (C, hidden), (hidden,), (hidden, hidden),
              (hidden,), (hidden, outputs), (F, outputs), (outputs,), (2,))  # fmt: skip
    for name, array, shape in zip(Network._fields, network, shapes, strict=True):
        if array.shape != shape or not np.isfinite(array).all():
            raise ValueError(
                f"{path}: {name} has shape {array.shape}, or numbers that are not finite; it must "
                f"be finite and have shape {shape}"
            )
    if not (network.std > 0).all():
        raise ValueError(f"{path}: std has elements that are not positive")
    return network, about


@cache
def shipped() -> Network:
    """Return the weights that are a part of the package."""
    return read_network(WEIGHTS)[0]
