"""A surface to paint on, and the colours."""

from __future__ import annotations

import pygame

Colour = tuple[int, int, int]

# Okabe & Ito's palette, which stays apart for the colour-blind, and greys.
BLUE: Colour = (0, 114, 178)
ORANGE: Colour = (213, 94, 0)
PALE_ORANGE: Colour = (253, 238, 224)
SOFT_ORANGE: Colour = (240, 183, 135)
INK: Colour = (33, 41, 54)
GREY: Colour = (112, 121, 134)
LINE: Colour = (190, 197, 206)
TRACK: Colour = (231, 235, 240)
PAPER: Colour = (255, 255, 255)


def mix(one: Colour, other: Colour, share: float) -> Colour:
    """Return the colour with a share, from 0 to 1, of the other."""
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(one, other, strict=True))
    return red, green, blue


class Canvas:
    """Rectangles, lines and texts in pixels from the upper left corner."""

    def __init__(self, surface: pygame.Surface) -> None:
        pygame.font.init()
        # Fonts live as long as a frame: another environment may quit pygame between two.
        self._fonts: dict[int, pygame.font.Font] = {}
        self._surface = surface
        surface.fill(PAPER)

    def text(
        self, x: float, y: float, text: str, colour: Colour = INK, size: int = 14, align: float = 0
    ) -> int:
        """Write text with its top at y; align 0, ½, 1: x is its left, middle, right. Return the
        width."""
        large = self._font(size).render(text, True, colour)  # twice as large: spaced more evenly
        width, height = (large.get_width() + 1) // 2, (large.get_height() + 1) // 2
        image = pygame.transform.smoothscale(large, (width, height))
        self._surface.blit(image, (round(x - align * width), round(y)))
        return width

    def fit(self, text: str, width: float, size: int = 14) -> str:
        """Return the text, cut so that it is not wider."""
        whole, font = text, self._font(size)
        while text and font.size(text if text == whole else text + "…")[0] > 2 * width:
            text = text[:-1]
        return text if text == whole else text + "…"

    def fill(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        pygame.draw.rect(self._surface, colour, _rect(x, y, width, height))

    def outline(
        self, x: float, y: float, width: float, height: float, colour: Colour, line: int = 1
    ) -> None:
        pygame.draw.rect(self._surface, colour, _rect(x, y, width, height), line)

    def dashes(self, x: float, y: float, width: float, colour: Colour) -> None:
        """Draw a dashed horizontal line."""
        for start in range(0, round(width), 8):
            self.fill(x + start, y, min(5, width - start), 1, colour)

    def _font(self, size: int) -> pygame.font.Font:
        if size not in self._fonts:
            self._fonts[size] = pygame.font.Font(None, 2 * size)
        return self._fonts[size]


def _rect(x: float, y: float, width: float, height: float) -> pygame.Rect:
    """Round the edges, not the extent, so that neighbours neither overlap nor leave gaps."""
    left, top = round(x), round(y)
    return pygame.Rect(left, top, round(x + width) - left, round(y + height) - top)
