"""The page at /: what is due and why, what was collected, what the budget buys."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Template

from crawl_env import __version__
from ephemeral_crawl.core import report
from ephemeral_crawl.live import Explanation, Overview, Status
from ephemeral_crawl.live.explanation import duration
from ephemeral_crawl.live.overview import BUDGETS
from ephemeral_crawl.live.reasons import redacted
from ephemeral_crawl.serve.service import Service

_PAGE = Path(__file__).parent / "page"
_STYLE = report.STYLE + (_PAGE / "fleet.css").read_text(encoding="utf-8")
_SCRIPT = (_PAGE / "fleet.js").read_text(encoding="utf-8")
# Nothing from elsewhere, no script and no style but ours, no frame around it.
POLICY = (
    f"default-src 'none'; script-src '{report.digest(_SCRIPT)}'; "
    f"style-src '{report.digest(_STYLE)}'; img-src data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_NAMES = {0.25: "a quarter", 0.5: "half", 1.0: "as now", 2.0: "double", 4.0: "four times"}
_FEWEST = 4  # samples of a history


def show(
    service: Service,
    status: Status,
    fleet: Overview,
    source: str,
    explanation: Explanation | None,
    names: Sequence[str],
    budget: str,
) -> str:
    """Return the page.

    Arguments:
        source: the one that is looked for, or "".
        explanation: of this source, if there is one.
        names: of sources that contain what is looked for, if there is none.
        budget: what it was set to.
    """
    return _template().render(
        status=status,
        fleet=fleet,
        asked=source,
        explanation=explanation,
        reasons=str(explanation).splitlines(),
        names=names,
        budget=budget,
        answer=answer(fleet, status),
        numbers=[
            ("sources", whole(status.sources)),
            ("not fetched yet", whole(status.new)),
            ("due", whole(status.due)),
            ("leased", whole(status.leased)),
            ("failing", whole(status.failing)),
            ("paused", whole(status.paused)),
            ("budget units left", short(status.balance)),
            ("price of a unit", short(status.price)),
        ],
        budgets=_budgets(fleet),
        buys=_buys(fleet),
        history=_history([(at, s.counts.collected) for at, s in service.samples]),
        version=__version__,
        now=time.time(),
    )


def answer(fleet: Overview, status: Status) -> str:
    """Return what the budget buys in a sentence."""
    if not status.sources:
        return "There are no sources yet. Add some with POST /v1/add."
    if not fleet.published > 0.0:
        return "Nothing is known of the sources yet."
    shares = {factor: fleet.collected(factor) / fleet.published for factor in (0.5, 1.0, 2.0)}
    text = (
        f"{short(status.budget)} budget units an hour collect {shares[1.0]:.0%} of what "
        f"{fleet.publishers(status.sources)}; half of the budget would collect "
        f"{shares[0.5]:.0%}, and double {shares[2.0]:.0%}."
    )
    return f"{text} {fleet.about_guess}".strip()


def _budgets(fleet: Overview) -> list[dict[str, Any]]:
    here = fleet.collected()
    return [
        {
            "name": _NAMES.get(factor, f"× {factor:g}"),
            "present": factor == 1.0,
            "budget": budget,
            "worth": worth,
            "share": f"{worth / fleet.published:.0%}" if fleet.published > 0.0 else "",
            "change": f"{worth / here - 1.0:+.0%}" if here > 0.0 and factor != 1.0 else "",
        }
        for factor, budget, worth in zip(BUDGETS, fleet.budgets, fleet.collects, strict=True)
    ]


class Tick(NamedTuple):
    at: float
    label: str


class Line(NamedTuple):
    kind: str
    points: list[tuple[float, float]]


class Plot(NamedTuple):
    """A picture in pixels."""

    lines: list[Line]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    mark: tuple[float, float] | None = None
    width: int = 640
    height: int = 230
    left: int = 56
    right: int = 620


def _plot(
    lines: dict[str, list[tuple[float, float]]],
    x_ticks: list[tuple[float, str]],
    mark: tuple[float, float] | None = None,
) -> Plot:
    """Return curves as a picture, whose ordinate begins at 0."""
    points = [point for line in lines.values() for point in line]
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    top = max((y for _, y in points), default=0.0) or 1.0
    left, right, bottom, above = 56, 620, 200, 14

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - low) / (high - low) if high > low else 0.5
        return round(left + across * (right - left), 1), round(
            bottom - y / top * (bottom - above), 1
        )

    step = _step(top / 4.0)
    y_values = [k * step for k in range(int(top / step + 1e-9) + 1)]
    return Plot(
        lines=[Line(kind, [place(*point) for point in line]) for kind, line in lines.items()],
        x_ticks=[Tick(place(x, 0.0)[0], label) for x, label in x_ticks],
        y_ticks=[Tick(place(low, y)[1], f"{y:g}") for y in y_values],
        mark=place(*mark) if mark else None,
    )


def _step(least: float) -> float:
    """Return a round number that is not below another.

    >>> _step(0.17), _step(3.0), _step(60.0)
    (0.2, 5.0, 100.0)
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least)


def _buys(fleet: Overview) -> Plot:
    curve = [(0.0, 0.0), *zip(fleet.budgets, fleet.collects, strict=True)]
    limit = [(0.0, fleet.published), (fleet.budgets[-1], fleet.published)]
    budget = fleet.budgets[BUDGETS.index(1.0)]
    ticks = [(budget * factor, short(budget * factor)) for factor in (0, 1, 2, 3, 4)]
    return _plot({"limit": limit, "curve": curve}, ticks, (budget, fleet.collected()))


def _history(samples: list[tuple[float, float]]) -> Plot | None:
    """Return the worth collected per hour over time, in at most a hundred parts."""
    points = samples[:: len(samples) // 100 + 1]
    rates = [
        (0.5 * (before + at), 3600.0 * (worth - before_worth) / (at - before))
        for (before, before_worth), (at, worth) in pairwise(points)
        if at > before
    ]
    if len(rates) < _FEWEST - 1:
        return None
    first, last = rates[0][0], rates[-1][0]
    ticks = [
        (at, datetime.fromtimestamp(at, UTC).strftime("%H:%M UTC"))
        for at in (first, 0.5 * (first + last), last)
    ]
    return _plot({"curve": rates}, ticks)


def short(value: float) -> str:
    """Return a number with three digits.

    >>> short(0.0), short(12.345), short(999.9), short(1234567.0), short(0.00012)
    ('0', '12.3', '1,000', '1,234,567', '0.00012')
    """
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def whole(value: float) -> str:
    """Return a whole number with commas."""
    return f"{value:,.0f}"


def relative(at: float, now: float) -> str:
    """Return a time relative to the present, in words.

    >>> relative(90.0, 0.0), relative(0.0, 8100.0), relative(0.2, 0.0)
    ('in 90 s', '2.25 h ago', 'now')
    """
    away = abs(at - now)
    if away < 1.0:
        return "now"
    return f"in {duration(away)}" if at > now else f"{duration(away)} ago"


def iso(at: float) -> str:
    """Return a time in ISO 8601."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return ""


@cache
def _template() -> Template:
    return report.template(
        *(_PAGE / "fleet.html", _STYLE, _SCRIPT),
        hidden=redacted,
        short=short,
        whole=whole,
        relative=relative,
        iso=iso,
        duration=duration,
    )
