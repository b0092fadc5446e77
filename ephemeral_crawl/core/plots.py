"""The style of all figures, and figures as SVG inside a page: small, with text as text, in the
page's colours.

There is one palette, in which an agent looks the same in every report.

Everything in a figure that belongs to one entry of a legend becomes an element with
`data-series="NUMBER"`, and the entry itself `class="entry"`; the script of the page highlights them
together. An artist belongs to the entry of its label. One that should have no entry of its own, as
a band around a curve, is labelled with an underscore before that name: `label="_whittle"`.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogFormatter

from crawl_env.numerics import FloatArray, IntArray

# Twelve hues that differ on white and on dark grey: those of Okabe and Ito, which colour-blind
# readers can distinguish, then others.
PALETTE = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#D55E00",
    "#56B4E9",
    "#8A8D93",
    "#8F63C9",
    "#A6761D",
    "#C9B42E",
    "#7FA832",
    "#B2495B",
)
BLUE, ORANGE, GREEN, PINK, RED, SKY, GREY, VIOLET, BROWN, YELLOW, LIME, WINE = PALETTE
# More, for policies that are seldom compared.
MORE = (
    "#D63AF9",
    "#5A64E6",
    "#C9A7F5",
    "#14B8B8",
    "#7A7A1E",
    "#FF8A80",
    "#E0218A",
    "#6F8FA8",
    "#2E8B57",
    "#A0623A",
    "#3F8CFF",
    "#00A3A3",
    "#E57A00",
    "#9C4DFF",
    "#5FA05F",
    "#B5838D",
    "#FF5C5C",
    "#7A5195",
    "#4C9F70",
    "#8F7A4D",
    "#C2649A",
)
MAGENTA, INDIGO, LILAC, TEAL, OLIVE, SALMON, ROSE, STEEL, MOSS, RUST = MORE[:10]
_LATER = MORE[10:]

# Colours of text and lines that follow the page, light or dark.
INK, FAINT = "#1b1d21", "#85888d"
# Text in coloured cells, which does not follow the page.
ON_LIGHT, ON_DARK = "#111111", "#fefefe"

DRAWN = 1000  # sources of a figure

Style = tuple[str, str, str]  # colour, line style, marker

STYLES: dict[str, Style] = {
    "whittle": (BLUE, "-", "o"),
    "whittle-exact": (SKY, "--", "s"),
    "myopic": (ORANGE, "-", "s"),
    "oldest-first": (GREEN, "-", "^"),
    "random": (GREY, "-", "x"),
    "fixed": (RED, "-", "v"),
    "lagrangian": (INDIGO, "-", "D"),
    "static": (PINK, "-", "P"),
    "nutch": (BROWN, "-", "h"),
    "miniflux": (YELLOW, "-", "*"),
    "adaptive-certainty": (LIME, "-", "<"),
    "adaptive-optimism": (WINE, "-", ">"),
    "adaptive-thompson": (VIOLET, "-", "p"),
    "adaptive-self-tuning": (LILAC, "--", "d"),
    "ping-first": (TEAL, "-", "d"),
    "freshness": (OLIVE, "-", "X"),
    "freshness-static": (SALMON, "-", "X"),
    "lambda-crawl": (ROSE, "-", "H"),
    "whittle-engine": (MAGENTA, "-", "D"),
    "whittle-knapsack": (STEEL, "-", "s"),
    "whittle-periodic": (MOSS, "-", "o"),
    "lagrangian-periodic": (RUST, "-", "D"),
    "whittle-deadline": (_LATER[0], "-", "^"),
    "deadline-assignment": (_LATER[1], "-", "v"),
    "whittle-conditional": (_LATER[2], "-", "P"),
    "whittle-looks": (_LATER[3], "-", "X"),
    "whittle-current": (_LATER[4], "-", "s"),
    "whittle-regimes": (_LATER[5], "-", "d"),
    "greedy-topics": (_LATER[6], "-", "p"),
    "in-context": (_LATER[7], "--", "o"),
    "whittle-stories": (_LATER[8], "-", "*"),
    "adaptive-engine": (_LATER[9], "--", "D"),
    "adaptive-stories": (_LATER[10], "--", "*"),
    "bound": (INK, "--", ""),
    # Learners: those of one family share a colour.
    "whittle-q": (BLUE, "-", "^"),
    "lagrange-q": (SKY, "-", "v"),
    "lspe": (GREEN, "-", "s"),
    "wiql": (RED, "-", "D"),
    "wiql-ucb": (RED, "--", "D"),
    "plug-in": (TEAL, "-", "s"),
    "uc-whittle": (TEAL, "--", "s"),
    "residual-evolution": (PINK, "--", "o"),
    "equivariant-ppo": (PINK, "-", "o"),
    "equivariant-index": (ORANGE, "-", "o"),
    "deeptop": (BROWN, "-", "P"),
    "neurwin": (GREY, "-", "X"),
    "qwinn": (YELLOW, "-", "h"),
}
_SB3 = {
    "ppo": (BLUE, "s"),
    "a2c": (WINE, "^"),
    "sac": (LIME, "v"),
    "td3": (RED, "<"),
    "dqn": (VIOLET, ">"),
    "qr-dqn": (GREY, "*"),
    "maskable-ppo": (GREEN, "p"),
}
for _name, (_colour, _marker) in _SB3.items():
    STYLES[_name] = (_colour, "-", _marker)

_LINES = ("-", "--", "-.", ":")
_MARKERS = "osD^vPX<>phd"

plt.rcParams.update(
    {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "axes.prop_cycle": cycler(color=PALETTE),
        "axes.titlesize": 11,
        "font.size": 10,
        "grid.alpha": 0.3,
        "grid.color": FAINT,
        "legend.frameon": False,
        "figure.constrained_layout.use": True,
        "text.color": INK,
        "text.parse_math": False,  # a $ in a name is a dollar
        "xtick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.color": FAINT,
        "ytick.labelcolor": INK,
    }
)


def style(name: str, i: int | None = None) -> dict[str, Any]:
    """Return colour, line style and marker of an agent, the same in every figure.

    Arguments:
        i: its number in the figure, by which an agent that is not in `STYLES` is given a style;
            by default its name decides.
    """
    if name not in STYLES:
        if i is None:
            i = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
        n = len(PALETTE)
        colour, line, marker = PALETTE[i % n], _LINES[i // n % 4], _MARKERS[i % len(_MARKERS)]
    else:
        colour, line, marker = STYLES[name]
    return {"color": colour, "linestyle": line, "marker": marker}


def colour(name: str, i: int | None = None) -> str:
    """Return the colour of an agent; see `style`."""
    return str(style(name, i)["color"])


def cells(axes: Any, colour: FloatArray, text: FloatArray, ends: tuple[float, float]) -> None:
    """Draw a heat map, (rows, columns), with numbers of two digits.

    Arguments:
        colour: what the colour shows, from `ends[0]`, red, to `ends[1]`, blue; NaN: none.
        text: the numbers; NaN: none.
    """
    low, high = ends
    axes.imshow(colour, vmin=low, vmax=high, cmap="RdBu", aspect="auto")
    for i, j in zip(*np.nonzero(~np.isnan(text)), strict=True):
        dark = abs((colour[i, j] - low) / (high - low) - 0.5) > 0.35
        number = f"{text[i, j]:.2f}".replace("0.", ".", 1)
        ink = ON_DARK if dark else ON_LIGHT
        axes.text(j, i, number, ha="center", va="center", size=7, color=ink)
    axes.grid(visible=False)
    axes.tick_params(length=0)


def new(rows: int = 1, columns: int = 1, width: float = 8.0, height: float = 3.2, **k: Any) -> Any:
    """Return a figure and its axes."""
    return plt.subplots(rows, columns, figsize=(width, height * rows), **k)


def drawn(values: FloatArray | IntArray) -> IntArray:
    """Return the places of the values that a figure draws, in ascending order of the values: all,
    or so many of them at even ranks that a page stays legible, the least and the largest included.

    >>> drawn(np.array([3.0, 1.0, 2.0]))
    array([1, 2, 0])
    """
    order = np.argsort(values, kind="stable")
    if order.size <= DRAWN:
        return order
    return order[np.linspace(0, order.size - 1, DRAWN).astype(np.intp)]


def of_drawn(number: int) -> str:
    """Return a sentence for the caption of a figure of many sources; "" if all are drawn."""
    return f" Drawn are {DRAWN:,} of {number:,} sources." if number > DRAWN else ""


class Plain(LogFormatter):
    """Labels of a logarithmic axis without superscripts: 0.01, 1, 100, 10k, 1M."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return _short(x) if super().__call__(x, pos) else ""


def _short(x: float) -> str:
    """Return a number as the label of an axis.

    >>> _short(0.01), _short(30_000), _short(1e6), _short(1e-7)
    ('0.01', '30k', '1M', '1e-07')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(x) < 1e12:
            return f"{x / size:g}{letter}"
    return f"{x:g}"


def finish(figure: Any) -> None:
    """Give logarithmic axes the labels of `Plain`."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log" and isinstance(axis.get_major_formatter(), LogFormatter):
                axis.set_major_formatter(Plain())
                axis.set_minor_formatter(Plain(minor_thresholds=(1, 0.4)))


def close(figure: Any) -> None:
    plt.close(figure)


def legend_above(axes: Any, columns: int) -> None:
    """Put the legend above the axes, in so many columns."""
    axes.legend(ncols=columns, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8)


_COLOURS = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    "#000000": "var(--ink)",
    "#ffffff": "var(--paper)",
}
_NO_METADATA: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def inline(figure: Any, number: int) -> tuple[str, float, bool]:
    """Return a matplotlib figure as an `<svg>` element, its width in pixels, and whether it has
    series that can be highlighted.

    The same figure gives the same text.

    Arguments:
        number: of the figure in its page; all identifiers begin with it, so that those of several
            figures do not clash.
    """
    several = _mark_series(figure)
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "ephemeral-crawl", "svg.fonttype": "none"}):
        figure.savefig(
            buffer, format="svg", bbox_inches="tight", transparent=True, metadata=_NO_METADATA
        )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, count=1, flags=re.S)
    svg = re.sub(r"<style type=\"text/css\">.*?</style>", "", svg, count=1, flags=re.S)
    size = re.match(r'<svg[^>]*? width="([\d.]+)pt"', svg)
    width = float(size[1]) * 4 / 3 if size else 0.0
    svg = re.sub(r'(<svg[^>]*?) width="[\d.]+pt" height="[\d.]+pt"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[\d.]+pt"', r"\1", svg, count=1)
    return _tidy(svg, number), width, several


_NUMBERS = re.compile(r' (?:d|x|y|transform|points)="[^"]*"')
_SERIES = re.compile(r' id="(series|entry)-(\d+)-\d+"')


def _tidy(svg: str, number: int) -> str:
    """Return SVG with short coordinates, series, colours of the page, and its own identifiers.

    Only tags are changed, not text.
    """

    def tag(match: re.Match[str]) -> str:
        text = _NUMBERS.sub(lambda m: re.sub(r"(\d\.\d\d)\d+", r"\1", m[0]), match[0])
        text = _SERIES.sub(r' class="\1" data-series="\2"', text)
        text = re.sub(r' id="([^"]*)"', rf' id="f{number}-\1"', text)
        text = re.sub(r'(href="#|url\(#)', rf"\g<1>f{number}-", text)
        text = re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", text)
        text = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", text)
        for colour, variable in _COLOURS.items():
            text = text.replace(colour, variable)
        return re.sub(r"\s*\n\s*", " ", text)

    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r"<[^<>]*>", tag, svg)
    return re.sub(r">\s*\n\s*<", ">\n<", svg)


def _mark_series(figure: Any) -> bool:
    """Give everything that belongs to an entry of a legend an identifier; return whether any
    legend has several entries."""
    legends = [
        legend for axes in figure.axes if (legend := axes.get_legend()) is not None
    ] + figure.legends
    names = list(dict.fromkeys(text.get_text() for legend in legends for text in legend.texts))
    if len(names) < 2:
        return False
    count = 0
    for legend in legends:
        for handle, text in zip(legend.legend_handles, legend.texts, strict=True):
            for artist in (text, *_parts(handle)):
                artist.set_gid(f"entry-{names.index(text.get_text())}-{(count := count + 1)}")
    for name, artist in _labelled(figure):
        if name in names:
            artist.set_gid(f"series-{names.index(name)}-{(count := count + 1)}")
    return True


def _parts(handle: Any) -> list[Any]:
    """Return the artists of which a container or an artist consists."""
    if isinstance(handle, tuple):
        return [part for child in handle for part in _parts(child)]
    return [handle] if handle is not None else []


def _labelled(figure: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name of the series and the artist, for all artists with a label."""
    for axes in figure.axes:
        children = set()
        for container in axes.containers:
            for artist in container.get_children():
                children.add(artist)
                yield str(container.get_label()).removeprefix("_"), artist
        for artist in (*axes.lines, *axes.collections, *axes.patches, *axes.texts):
            if artist not in children:
                yield str(artist.get_label()).removeprefix("_"), artist
