"""Showing frames, in a window or as arrays of pixels; pygame is imported when this is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from crawl_env.numerics import FloatArray
from crawl_env.rendering.frame import Frame
from crawl_env.simulation.simulation import Simulation

if TYPE_CHECKING:
    from crawl_env.rendering.window import Window

Picture = NDArray[np.uint8]  # (480, 800, 3)


class Viewer:
    """Shows frames.

    Arguments:
        mode: "rgb_array", which needs no display, or "human", which opens a window.
        fps: frames a second that the window is slowed down to.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame is not there.
    """

    def __init__(self, mode: str, fps: float = 4) -> None:
        _require_pygame()
        self._mode, self._fps = mode, fps
        self._window: Window | None = None

    def show(self, frame: Frame) -> Picture | None:
        """Return a new picture (480, 800, 3) uint8; in "human" mode show it and return None."""
        from crawl_env.rendering import picture, window

        if self._mode == "rgb_array":
            return picture.pixels(frame)
        self._window = self._window or window.Window(self._fps)
        self._window.show(frame)
        return None

    def close(self) -> None:
        """Close the window, if one is open."""
        if self._window is not None:
            self._window.close()
            self._window = None


def pictures(simulation: Simulation, elapsed: FloatArray) -> tuple[Picture, ...]:
    """Return a picture (480, 800, 3) uint8 of each row; `elapsed` (B,) counts its epochs.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame is not there.
    """
    _require_pygame()
    from crawl_env.rendering import picture

    return tuple(
        picture.pixels(Frame.of(simulation, elapsed[row], row=row))
        for row in range(simulation.num_envs)
    )


def _require_pygame() -> None:
    try:
        import pygame  # noqa: F401
    except ImportError as error:
        raise gym.error.DependencyNotInstalled(
            'pygame is not installed and pictures need it; pip install "ephemeral-crawl[render]", '
            'or use render_mode="ansi"'
        ) from error
