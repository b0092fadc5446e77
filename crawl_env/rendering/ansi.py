"""Rendering of a frame as text, for terminals of 100 columns."""

from __future__ import annotations

import numpy as np

from crawl_env.content.world import NEVER
from crawl_env.numerics import IntArray
from crawl_env.rendering.frame import Frame, number

ALL = 24  # number of sources up to which each has a line of its own
SOME = 12  # above it: number of lines for the largest values, and for the largest harvests
WIDTH = 40  # characters in the longest bar
QUEUE = 20  # characters in the bar of the queue
EIGHTHS = " ▏▎▍▌▋▊▉"


def text(frame: Frame) -> str:
    """Return one line per source: a bar of its value (dots: up to the ceiling), numbers, crawls.

    Large fleets have lines only for the largest values and the largest harvests, and one line for
    all other sources. An indexing engine has a line for its queue.
    """
    sources = _sources_with_line(frame)
    lines = ["   ".join(f"{label} {value}" for label, value in frame.headline())]
    if frame.queue is not None:
        bar = "█" * round(frame.queue.full * QUEUE)
        lines += [f"{'queue':<14} {bar:·<{QUEUE}}  {frame.queue}"]
    belief = "" if frame.belief is None else f"{'belief':>10}"
    axis = "uncollected utility (square-root scale)" if frame.root else "uncollected utility"
    pings = "" if frame.pings is None else f"{'pings':>7}"
    lines += [f"{'source':<14} {axis:<{WIDTH}}{'value':>10}{belief}{pings}{'age':>7}  crawled"]
    lines += [_line(frame, i) for i in sources.tolist()]
    if sources.size < len(frame.names):
        lines += [_rest(frame, sources)]
    return "\n".join(lines)


def _sources_with_line(frame: Frame) -> IntArray:
    """Return the sources that have a line: by number, or by value if not all have one."""
    if len(frame.names) <= ALL:
        return np.arange(len(frame.names))
    has_line = np.zeros(len(frame.names), dtype=bool)
    by_value = np.argsort(-frame.value, kind="stable")
    has_line[by_value[:SOME]] = True
    crawled = np.flatnonzero(frame.crawled)
    has_line[crawled[np.argsort(-frame.collected[crawled], kind="stable")[:SOME]]] = True
    return by_value[has_line[by_value]]


def _line(frame: Frame, i: int) -> str:
    name = _cut(frame.names[i], 14)
    belief = "" if frame.belief is None else f"{number(frame.belief[i], 4):>10}"
    pings = "" if frame.pings is None else f"{number(frame.pings[i]):>7}"
    age = "never" if frame.age[i] >= NEVER else number(frame.age[i])
    crawled = f"  ● +{number(frame.collected[i], 4)}" if frame.crawled[i] else ""
    numbers = f"{number(frame.value[i], 4):>10}{belief}{pings}{age:>7}"
    return f"{name:<14} {_bar(frame, i)}{numbers}{crawled}"


def _rest(frame: Frame, sources: IntArray) -> str:
    rest = np.ones(len(frame.names), dtype=bool)
    rest[sources] = False
    value, crawled = frame.value[rest], int(frame.crawled[rest].sum())
    line = f"… {value.size} more: value {number(value.sum(), 4)}, at most {number(value.max())}"
    if not crawled:
        return line
    return f"{line}; {crawled} crawled, +{number(frame.collected[rest].sum(), 4)}"


def _bar(frame: Frame, i: int) -> str:
    value, ceiling = frame.height(np.array([frame.value[i], frame.ceiling[i]])) * WIDTH
    whole, eighths = divmod(round(value * 8), 8)
    bar = "█" * whole + (EIGHTHS[eighths] if eighths else "")
    return f"{bar:·<{round(ceiling)}}".ljust(WIDTH)


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"
