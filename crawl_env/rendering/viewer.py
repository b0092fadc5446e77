"""Display of frames in a window or as arrays of pixels; pygame is imported only when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from crawl_env.extras import missing
from crawl_env.numerics import FloatArray
from crawl_env.rendering.frame import Frame
from crawl_env.simulation.simulation import Simulation

if TYPE_CHECKING:
    import pygame

Picture = NDArray[np.uint8]  # (480, 800, 3)


class Viewer:
    """Displays frames as pictures or in a window; pygame has one window for all environments.

    Arguments:
        mode: "rgb_array", which needs no display, or "human", which opens a window.
        fps: maximum number of frames per second shown in a window.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame is not installed.
    """

    def __init__(self, mode: str, fps: float = 4) -> None:
        _require_pygame()
        self._mode, self._fps = mode, fps
        self._clock: pygame.time.Clock | None = None

    def show(self, frame: Frame) -> Picture | None:
        """Return a picture (480, 800, 3) uint8; in "human" mode, show it and return None."""
        from crawl_env.rendering import picture

        if self._mode == "rgb_array":
            return picture.pixels(frame)
        import pygame

        self._clock = self._clock or pygame.time.Clock()
        picture.paint(frame, _window(picture.SIZE))
        pygame.event.pump()  # otherwise the desktop reports the window as not responding
        pygame.display.flip()
        self._clock.tick(self._fps)
        return None

    def close(self) -> None:
        """Close the window if this viewer opened it."""
        if self._clock is not None:
            import pygame

            pygame.display.quit()
            self._clock = None


def pictures(simulation: Simulation, elapsed: FloatArray) -> tuple[Picture, ...]:
    """Return a picture (480, 800, 3) uint8 of each environment after `elapsed` (B,) steps.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame is not installed.
    """
    _require_pygame()
    from crawl_env.rendering import picture

    return tuple(
        picture.pixels(Frame.of(simulation, elapsed[env], env=env))
        for env in range(simulation.num_envs)
    )


def _window(size: tuple[int, int]) -> pygame.Surface:
    """Return the surface of the window, which is opened if necessary."""
    import pygame

    surface = pygame.display.get_surface() if pygame.display.get_init() else None
    if surface is None:  # the first frame, or another environment has quit pygame
        pygame.display.init()
        surface = pygame.display.set_mode(size)
        pygame.display.set_caption("EphemeralCrawl-v0")
    return surface


def _require_pygame() -> None:
    try:
        import pygame  # noqa: F401
    except ImportError as error:
        raise gym.error.DependencyNotInstalled(
            f'{missing("pygame", "drawing")}; render_mode="ansi" needs no package'
        ) from error
