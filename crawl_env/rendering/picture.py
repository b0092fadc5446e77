"""Drawing of a frame with pygame: headline, a bar for each source, the latest rewards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pygame
from numpy.typing import NDArray

from crawl_env.content.world import NEVER
from crawl_env.numerics import FloatArray
from crawl_env.rendering.frame import Frame, Queue, number

Colour = tuple[int, int, int]

# Okabe & Ito's palette, distinguishable by colour-blind readers, and greys.
BLUE: Colour = (0, 114, 178)
ORANGE: Colour = (213, 94, 0)
PALE_ORANGE: Colour = (253, 238, 224)
SOFT_ORANGE: Colour = (240, 183, 135)
INK: Colour = (33, 41, 54)
GREY: Colour = (112, 121, 134)
LINE: Colour = (190, 197, 206)
TRACK: Colour = (231, 235, 240)
PAPER: Colour = (255, 255, 255)

SIZE = (800, 480)  # pixels
LEFT, RIGHT = 80, 784  # horizontal extent of both panels, pixels
NAMED = 25  # number of sources up to which each bar has its name and numbers
BARS = 240  # largest number of bars; for more sources, a bar is the mean of several
STEPS = 100  # length of the history of rewards
ROW = 15  # height of a row of the table, pixels
STRIP = 22  # height of the strip of the queue, pixels


@dataclass(frozen=True)
class Area:
    """Position of the bars, in pixels."""

    top: float
    bottom: float
    step: float  # from bar to bar
    width: float  # of a bar

    def left(self, i: int) -> float:
        """Return the left edge of bar i."""
        return LEFT + (i + 0.5) * self.step - self.width / 2

    def y(self, height: FloatArray) -> FloatArray:
        """Return the vertical positions of heights between 0 and 1."""
        return self.bottom - height * (self.bottom - self.top)


def pixels(frame: Frame) -> NDArray[np.uint8]:
    """Return the picture as a new array (480, 800, 3)."""
    surface = pygame.Surface(SIZE, depth=32)  # off-screen, so that no display is needed
    paint(frame, surface)
    return pygame.surfarray.array3d(surface).transpose(1, 0, 2).copy()


def paint(frame: Frame, surface: pygame.Surface) -> None:
    """Draw the frame on a surface of `SIZE`."""
    canvas = Canvas(surface)
    _headline(canvas, frame)
    _legend(canvas, frame)
    bottom = SIZE[1] - 12 if frame.rewards is None else 362
    if frame.queue is not None:
        bottom -= STRIP
        _queue(canvas, frame.queue, top=bottom + 8)
    _sources(canvas, frame, bottom=bottom)
    if frame.rewards is not None:
        _history(canvas, frame.rewards, frame.step, top=394, bottom=452)


def _headline(canvas: Canvas, frame: Frame) -> None:
    x = 16.0
    for label, value in frame.headline():
        canvas.text(x, 14, label, GREY, 16)
        x += max(100, canvas.text(x, 28, value, INK, 32) + 28)


def _legend(canvas: Canvas, frame: Frame) -> None:
    y = 70
    canvas.text(16, y, "utility" + (" (square-root axis)" if frame.root else ""), GREY, 16)
    x = RIGHT - canvas.text(RIGHT, y, "collected in the last step", GREY, 16, align=1) - 18
    canvas.fill(x, y - 1, 12, 12, SOFT_ORANGE)
    canvas.outline(x, y - 1, 12, 12, ORANGE)
    for label, colour in (("ceiling", TRACK), ("value", BLUE)):
        x -= canvas.text(x - 16, y, label, GREY, 16, align=1) + 34
        canvas.fill(x, y - 1, 12, 12, colour)
    if frame.belief is not None:
        x -= canvas.text(x - 16, y, "belief", GREY, 16, align=1) + 36
        canvas.fill(x, y + 4, 14, 2, INK)


def _sources(canvas: Canvas, frame: Frame, bottom: float) -> None:
    heights, crawled = _bars(frame)
    has_names = len(frame.names) <= NAMED
    step = (RIGHT - LEFT) / crawled.size
    width = min(0.64 * step, 96.0) if has_names else step - (step > 5)
    table = _table(frame) if has_names else []
    area = Area(100, bottom - (ROW * len(table) + 8 if has_names else 26), step, width)
    gap = 2 if has_names else 0
    for i in np.flatnonzero(crawled == 1).tolist():
        x, height = LEFT + i * step + gap, area.bottom - area.top + 6
        canvas.fill(x, area.top - 6, step - 2 * gap, height, PALE_ORANGE)
    _axis(canvas, frame, area)
    for i in range(crawled.size):
        _bar(canvas, area, i, heights[:, i], bool(crawled[i]))
    for line, (label, colour, entries) in enumerate(table):
        _row(canvas, area, line, label, colour, entries)
    if not has_names:
        _marks(canvas, frame, crawled, area)


def _bars(frame: Frame) -> tuple[FloatArray, FloatArray]:
    """Return the heights of the bars on the axis, (4, K): ceiling, value, collected and belief
    (NaN: none); and the fraction of the sources of each bar that were crawled, (K,).

    A bar is one source, or the mean of several: few sources are in order, more are sorted by
    ceiling, very many are grouped.
    """
    n = len(frame.names)
    order = np.arange(n) if n <= NAMED else np.argsort(-frame.ceiling, kind="stable")
    starts = np.arange(min(n, BARS)) * n // min(n, BARS)
    sizes = np.diff(starts, append=n)

    belief = np.full(n, np.nan) if frame.belief is None else frame.belief
    quantities = np.stack([frame.ceiling, frame.value, frame.collected, belief, frame.crawled])
    mean = np.add.reduceat(quantities[:, order], starts, axis=1) / sizes
    return frame.height(mean[:4]), mean[4]


def _axis(canvas: Canvas, frame: Frame, area: Area) -> None:
    for value in dict.fromkeys(_ticks(frame)):
        y = area.y(frame.height(np.array(value))).item()
        canvas.fill(LEFT, y, RIGHT - LEFT, 1, LINE if value == 0 else TRACK)
        canvas.text(LEFT - 8, y - 5, number(value), GREY, 16, align=1)


def _ticks(frame: Frame) -> list[float]:
    """Return round values at roughly equal distances on the axis."""
    if frame.root:
        return [0.0, *(_round_down(frame.scale * part) for part in (0.06, 0.25, 0.56, 1.0))]
    step = _round_down(frame.scale / 3)
    return [step * k for k in range(int(frame.scale / step) + 1)]


def _round_down(x: float) -> float:
    """Return the largest number of the form 1, 2 or 5 times a power of ten that is at most x."""
    power = 10.0 ** np.floor(np.log10(x))
    return float(power * max(k for k in (1, 2, 5) if k * power <= x * (1 + 1e-9)))


def _bar(canvas: Canvas, area: Area, i: int, heights: FloatArray, crawled: bool) -> None:
    ceiling, value, collected, belief = area.y(heights)
    x, wide = area.left(i), area.width >= 8
    canvas.fill(x, ceiling, area.width, area.bottom - ceiling, TRACK)
    if crawled:
        canvas.fill(x, collected, area.width, area.bottom - collected, SOFT_ORANGE)
    canvas.fill(x, value, area.width, area.bottom - value, BLUE)
    if crawled and wide:
        canvas.outline(x, collected, area.width, area.bottom - collected, ORANGE)
    if not np.isnan(belief):
        beyond = 3 if wide else 0
        canvas.fill(x - beyond, belief - 1, area.width + 2 * beyond, 2, INK)


def _table(frame: Frame) -> list[tuple[str, Colour, list[str]]]:
    """Return the rows under the bars: label, colour, one entry per source."""
    collected = np.where(frame.crawled, frame.collected, np.nan)
    rows = [("source", INK, list(frame.names)), ("value", BLUE, _short(frame.value, frame.scale))]
    if frame.belief is not None:
        rows += [("belief", INK, _short(frame.belief, frame.scale))]
    if frame.pings is not None:
        rows += [("pings", GREY, [number(n) if n else "" for n in frame.pings.tolist()])]
    ages = ["–" if age >= NEVER else number(age) for age in frame.age]
    return [*rows, ("collected", ORANGE, _short(collected, frame.scale)), ("age", GREY, ages)]


def _short(values: FloatArray, scale: float) -> list[str]:
    """Return numbers short enough for narrow bars, to a thousandth of the axis; no text for NaN.

    >>> _short(np.array([0.0312, 123.4, 3e-7, np.nan]), scale=20)
    ['0.03', '123', '0', '']
    """
    rounded = np.round(values, 3 - int(np.floor(np.log10(scale))))
    return ["" if np.isnan(value) else _brief(value) for value in rounded.tolist()]


def _brief(value: float) -> str:
    numbers = (number(value, digits) for digits in (3, 2))
    return next((text for text in numbers if len(text) <= 5), number(value, 1))


def _row(
    canvas: Canvas, area: Area, line: int, label: str, colour: Colour, entries: list[str]
) -> None:
    y = area.bottom + 8 + ROW * line
    canvas.text(LEFT - 8, y, label, GREY, 16, align=1)
    size, margin = (18, 8) if area.step > 60 else (15, 1)
    for i, entry in enumerate(entries):
        short = canvas.fit(entry, area.step - margin, size)
        canvas.text(LEFT + (i + 0.5) * area.step, y, short, colour, size, align=0.5)


def _marks(canvas: Canvas, frame: Frame, crawled: FloatArray, area: Area) -> None:
    """Shade the bars by the fraction of their sources that were crawled, and add a legend."""
    for i in np.flatnonzero(crawled).tolist():
        colour = mix(PAPER, ORANGE, float(np.sqrt(crawled[i])))
        canvas.fill(LEFT + i * area.step, area.bottom + 3, area.step, 6, colour)
    n, k = len(frame.names), crawled.size
    note = f"{n} sources, the highest ceiling first"
    if n > k:
        note += f"; a bar is the mean of {n // k}" + (f" or {n // k + 1}" if n % k else "")
    canvas.text(LEFT, area.bottom + 13, note, GREY, 16)


def _queue(canvas: Canvas, queue: Queue, top: float) -> None:
    """Draw how full the queue of the indexing engine is, and write what became of items."""
    canvas.text(LEFT - 8, top, "queue", GREY, 16, align=1)
    half = (RIGHT - LEFT) // 2
    canvas.fill(LEFT, top, half, 12, TRACK)
    canvas.fill(LEFT, top, queue.full * half, 12, BLUE)
    canvas.text(LEFT + half + 10, top, str(queue), INK, 16)


def _history(canvas: Canvas, rewards: FloatArray, last_step: int, top: int, bottom: int) -> None:
    """Draw the latest rewards as columns, which grow from the left and then scroll."""
    recent = rewards[-STEPS:]
    scale = float(rewards.max(initial=0.0)) or 1.0
    step = (RIGHT - LEFT) // STEPS
    canvas.text(16, top - 18, "reward per step", GREY, 16)
    x = RIGHT - canvas.text(RIGHT, top - 18, "mean of all steps", GREY, 16, align=1) - 24
    canvas.dashes(x, top - 14, 18, INK)
    canvas.fill(LEFT, bottom, RIGHT - LEFT, 1, LINE)
    for tick in (0.0, _round_down(scale))[: 1 + recent.size]:
        canvas.text(LEFT - 8, bottom - tick / scale * (bottom - top) - 5, number(tick), GREY, 16, 1)
    for i, reward in enumerate(recent.tolist()):
        height = reward / scale * (bottom - top)
        colour = ORANGE if i == recent.size - 1 else SOFT_ORANGE
        canvas.fill(LEFT + i * step, bottom - height, step - 1, height, colour)
    if not recent.size:
        return
    canvas.dashes(LEFT, bottom - rewards.mean() / scale * (bottom - top), RIGHT - LEFT, INK)
    canvas.text(LEFT, bottom + 5, str(last_step - recent.size + 1), GREY, 16)
    if recent.size > 5:  # otherwise the two numbers would overlap
        last, align = LEFT + (recent.size - 0.5) * step, 1 if recent.size > 90 else 0.5
        canvas.text(last, bottom + 5, f"step {last_step}", GREY, 16, align)


# --------------------------------- shapes and texts


def mix(one: Colour, other: Colour, part: float) -> Colour:
    """Return `one` mixed with a fraction `part`, in [0, 1], of `other`."""
    red, green, blue = (round(a + part * (b - a)) for a, b in zip(one, other, strict=True))
    return red, green, blue


class Canvas:
    """Drawing of rectangles, lines and text in pixels from the upper left corner."""

    def __init__(self, surface: pygame.Surface) -> None:
        pygame.font.init()
        # Fonts are loaded per frame, since another environment may quit pygame between two frames.
        self._fonts: dict[int, pygame.font.Font] = {}
        self._surface = surface
        surface.fill(PAPER)

    def text(
        self, x: float, y: float, text: str, colour: Colour, size: int, align: float = 0
    ) -> int:
        """Write text with its top at y and return its width; for align 0, ½, 1, x is the left end,
        the middle or the right end."""
        large = self._font(size).render(text, True, colour)  # twice as large, for even spacing
        width, height = (large.get_width() + 1) // 2, (large.get_height() + 1) // 2
        image = pygame.transform.smoothscale(large, (width, height))
        self._surface.blit(image, (round(x - align * width), round(y)))
        return width

    def fit(self, text: str, width: float, size: int) -> str:
        """Return the text, truncated to the width."""
        whole, font = text, self._font(size)
        while text and font.size(text if text == whole else text + "…")[0] > 2 * width:
            text = text[:-1]
        return text if text == whole else text + "…"

    def fill(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        pygame.draw.rect(self._surface, colour, _rect(x, y, width, height))

    def outline(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        pygame.draw.rect(self._surface, colour, _rect(x, y, width, height), 2)

    def dashes(self, x: float, y: float, width: float, colour: Colour) -> None:
        """Draw a dashed horizontal line."""
        for start in range(0, round(width), 8):
            self.fill(x + start, y, min(5, width - start), 1, colour)

    def _font(self, size: int) -> pygame.font.Font:
        if size not in self._fonts:
            self._fonts[size] = pygame.font.Font(None, 2 * size)
        return self._fonts[size]


def _rect(x: float, y: float, width: float, height: float) -> pygame.Rect:
    """Return a rectangle; edges, not sizes, are rounded, so that neighbours touch exactly."""
    left, top = round(x), round(y)
    return pygame.Rect(left, top, round(x + width) - left, round(y + height) - top)
