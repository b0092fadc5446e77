"""The window of render_mode="human"."""

from __future__ import annotations

import pygame

from crawl_env.rendering import picture
from crawl_env.rendering.frame import Frame


class Window:
    """A window that opens with its first frame; pygame has one for all environments of a process.

    Arguments:
        fps: frames a second it waits for.
    """

    def __init__(self, fps: float) -> None:
        self._fps = fps
        self._clock = pygame.time.Clock()

    def show(self, frame: Frame) -> None:
        picture.paint(frame, self._surface())
        pygame.event.pump()  # else the desktop takes the window for hung
        pygame.display.flip()
        self._clock.tick(self._fps)

    def close(self) -> None:
        pygame.display.quit()

    def _surface(self) -> pygame.Surface:
        surface = pygame.display.get_surface() if pygame.display.get_init() else None
        if surface is None:  # the first frame, or another environment has quit pygame
            pygame.display.init()
            surface = pygame.display.set_mode(picture.SIZE)
            pygame.display.set_caption("EphemeralCrawl-v0")
        return surface
