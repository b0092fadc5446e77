"""Figures as SVG inside a page: small, with text as text, in the page's colours.

Everything in a figure that belongs to one entry of a legend becomes an element with
`data-series="NUMBER"`, and the entry itself `class="entry"`; the script of the page highlights them
together. An artist belongs to the entry of its label. One that should have no entry of its own, as
a band around a curve, is labelled with an underscore before that name: `label="_whittle"`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl

from ephemeral_crawl.core import plots

_COLOURS = {
    plots.INK: "var(--ink)",
    plots.FAINT: "var(--faint)",
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

    def tag(found: re.Match[str]) -> str:
        text = _NUMBERS.sub(lambda m: re.sub(r"(\d\.\d\d)\d+", r"\1", m[0]), found[0])
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
        contained = set()
        for container in axes.containers:
            for artist in container.get_children():
                contained.add(artist)
                yield str(container.get_label()).removeprefix("_"), artist
        for artist in (*axes.lines, *axes.collections, *axes.patches, *axes.texts):
            if artist not in contained:
                yield str(artist.get_label()).removeprefix("_"), artist
