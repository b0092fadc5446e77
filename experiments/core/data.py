"""Rows of a record, estimates from them, and the tables and figures that show these.

A study says what is in its report as data: a sequence of paragraphs (text), `Table`, `Lines` and
`Details`, each of which takes what it shows from the rows by the names of their columns. What is
special is a function of the report and the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.statistics import UNKNOWN, Estimate
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.evaluation import percent
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import Rows

Row = Mapping[str, Any]
Case = Mapping[str, Any]  # values of columns; compared as text


class Data:
    """The rows of a record, found by the values of their columns.

    >>> data = Data([dict(task="a", reward="2", most="4"), dict(task="b", reward="3", most="4")])
    >>> data.values("task"), data.numbers("reward", per="most", task="b")
    (['a', 'b'], array([0.75]))
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._groups: dict[tuple[str, ...], dict[tuple[str, ...], list[Row]]] = {}

    def where(self, **case: Any) -> list[Row]:
        """Return the rows with these values."""
        columns = sorted(case)
        return self._by(*columns).get(tuple(str(case[name]) for name in columns), [])

    def cases(self, *columns: str, **case: Any) -> list[dict[str, str]]:
        """Return the different values of some columns, in the order of the rows, among those with
        given values of others."""
        data = Data(self.where(**case)) if case else self
        conditions = {name: str(value) for name, value in case.items()}
        return [conditions | dict(zip(columns, key, strict=True)) for key in data._by(*columns)]

    def values(self, column: str, **case: Any) -> list[str]:
        """Return the different values of a column, in the order of the rows."""
        return [row[column] for row in self.cases(column, **case)]

    def numbers(self, column: str, per: str = "", **case: Any) -> FloatArray:
        """Return a column of the rows with these values, as a fraction of another if `per` names
        one; NaN where there is no number."""
        rows = self.where(**case)
        numbers, *whole = (
            np.array([float("nan" if row[name] in ("", None) else row[name]) for row in rows])
            for name in (column, per)
            if name
        )
        return numbers / whole[0] if whole else numbers

    def _by(self, *columns: str) -> dict[tuple[str, ...], list[Row]]:
        if columns not in self._groups:
            groups = self._groups.setdefault(columns, {})
            for row in self.rows:
                groups.setdefault(tuple(str(row.get(name, "")) for name in columns), []).append(row)
        return self._groups[columns]


Cell = Callable[[Data, Case], Any]  # an estimate, or whatever else is shown of a case


def mean(column: str, per: str = "", **other: Any) -> Cell:
    """Return the cell with the mean of a column over the runs of a case; see `Data.numbers`.

    Arguments:
        other: values that replace those of the case.
    """

    def cell(data: Data, case: Case) -> Estimate:
        sample = data.numbers(column, per, **{**case, **other})
        complete = sample.size > 0 and bool(np.isfinite(sample).all())
        return _estimated(statistics.mean, sample) if complete else UNKNOWN

    return cell


def versus(statistic: Callable[..., Estimate], column: str, per: str = "", **other: Any) -> Cell:
    """Return the cell that compares the runs of a case with those of another one, which differs by
    the values of some columns.

    Arguments:
        statistic: of two samples, the case and the other, such as `statistics.gain`.
    """

    def cell(data: Data, case: Case) -> Estimate:
        pair = (data.numbers(column, per, **each_case) for each_case in (case, {**case, **other}))
        mine, its = pair
        return _estimated(statistic, mine, its) if mine.size and its.size else UNKNOWN

    return cell


def _estimated(statistic: Callable[..., Estimate], *samples: FloatArray) -> Estimate:
    """Return the statistic; a single run stands for all, since nothing is random."""
    estimate = statistic(*samples)
    return Estimate(*[estimate.mean] * 3) if samples[0].size == 1 else estimate


def gain(column: str, per: str = "", level: float = 0.95, **other: Any) -> Cell:
    """Return the cell of the relative gain over another case, with an interval of a level; see
    `versus`."""

    def statistic(mine: FloatArray, its: FloatArray) -> Estimate:
        return Estimate(*(x - 1 for x in statistics.ratio(mine, its, level=level)))

    return versus(statistic, column, per, **other)


def total(column: str, per: str) -> Cell:
    """Return the cell with the sum of a column over the rows of a case, as a fraction of that of
    another column; without an interval."""

    def cell(data: Data, case: Case) -> Estimate:
        part, whole = (data.numbers(name, **case).sum() for name in (column, per))
        return Estimate(*[float(part / whole)] * 3)

    return cell


def value(column: str, **other: Any) -> Cell:
    """Return the cell with a value that all rows of a case have."""

    def cell(data: Data, case: Case) -> Any:
        rows = data.where(**{**case, **other})
        return rows[0][column] if rows else ""

    return cell


def change(estimate: Estimate) -> str:
    """Return a relative change as text, without its interval."""
    return shown("+.1%", estimate)


def rounded(estimate: Estimate) -> str:
    """Return a mean as text, with five digits."""
    return statistics.number(estimate.mean)


def share(estimate: Estimate) -> str:
    """Return a fraction as text, without its interval."""
    return shown(".1%", estimate)


Text = str | Callable[..., str]  # how something is shown: the format of its mean, or a function


def shown(text: Text, *values: Any) -> str:
    """Return numbers or estimates as text; what is empty stays so.

    >>> shown(".1%", Estimate(0.5, 0.4, 0.6)), shown(".1%", UNKNOWN), shown("g", "2.50")
    ('50.0%', 'n/a', '2.5')
    """
    if callable(text):
        return text(*values)
    if values[0] == "":
        return ""
    number = float(values[0].mean if isinstance(values[0], Estimate) else values[0])
    return "n/a" if np.isnan(number) else format(number, text)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Arguments:
        title: the heading.
        cell: what is shown of the case of a row.
        text: how.
        of: values of more columns of the record that belong to the case.
    """

    title: str
    cell: Cell
    text: Text = percent
    of: Case = field(default_factory=dict)


@dataclass(frozen=True)
class Across:
    """A column of a table for each value of a column of the record.

    Arguments:
        column: of the record.
        cells: what is shown of a case; `text` takes all of them.
        only: the values that are shown; by default all.
        title: the heading of a value.
    """

    column: str
    cells: Sequence[Cell]
    text: Text = percent
    only: Sequence[Any] | None = None
    title: str = "{}"

    def columns(self, data: Data, case: Case) -> list[Column]:
        present = data.values(self.column, **case)
        values = present if self.only is None else [x for x in map(str, self.only) if x in present]
        return [
            Column(self.title.format(_plainly(x)), self._together, str, {self.column: x})
            for x in values
        ]

    def _together(self, data: Data, case: Case) -> str:
        values = (cell(data, case) for cell in self.cells)
        return shown(self.text, *values) if data.where(**case) else ""


@dataclass(frozen=True)
class Table:
    """A table with a row for each case.

    Arguments:
        caption: with a `{column}` for each that `each` names.
        rows: the columns of the record whose values are the cases, and their headings.
        columns: what is shown of the cases.
        each: columns of the record, for each of whose values there is a table.
        where: values of the rows that are used.
    """

    caption: str
    rows: Mapping[str, str]
    columns: Sequence[Column | Across]
    each: Sequence[str] = ()
    where: Case = field(default_factory=dict)

    def __call__(self, report: Report, data: Data) -> None:
        """Add the tables to a report."""
        for group in data.cases(*self.each, **self.where) if self.each else [dict(self.where)]:
            columns = [
                column
                for several in self.columns
                for column in (
                    several.columns(data, group) if isinstance(several, Across) else [several]
                )
            ]
            rows = [
                [
                    *(_plainly(case[name]) for name in self.rows),
                    *(shown(c.text, c.cell(data, {**case, **c.of})) for c in columns),
                ]
                for case in data.cases(*self.rows, **group)
            ]
            titles = [*self.rows.values(), *(column.title for column in columns)]
            report.table(self.caption.format_map(group), titles, rows)


@dataclass(frozen=True)
class Listing:
    """A table of rows as they are recorded, equal ones once.

    Arguments:
        caption: of the table.
        columns: of the record, and their headings.
    """

    caption: str
    columns: Mapping[str, str]

    def __call__(self, report: Report, data: Data) -> None:
        """Add the table to a report."""
        rows = dict.fromkeys(
            tuple(_plainly(str(row.get(name, ""))) for name in self.columns) for row in data.rows
        )
        report.table(self.caption, list(self.columns.values()), list(rows))


@dataclass(frozen=True)
class Lines:
    """A figure of estimates against a column of the record, with 95 % intervals if there are any.

    Arguments:
        caption: of the figure.
        x: a column; its values are places on the axis if they are not numbers.
        order: of these places, by default that of the rows.
        y: an estimate.
        line: the column for each of whose values there is a line.
        rows, columns: the columns for each of whose values there are panels.
        only: the values of `line` that are drawn; by default all.
        panels: the values of `columns` that have panels; by default all.
        where: values of the rows that are used.
        labels: of the axes.
        style: of the lines and marks; with "o" there are no lines.
        scale: by which estimates are multiplied.
        log: the axes that are logarithmic.
        level: where a horizontal line is drawn.
        name: of the figure as a file of its own.
        size: of a panel, inches.
        title: of a line, with the value.
    """

    caption: str
    x: str
    y: Cell
    line: str
    columns: str = ""
    rows: str = ""
    only: Sequence[str] | None = None
    panels: Sequence[str] | None = None
    order: Sequence[str] | None = None
    where: Case = field(default_factory=dict)
    labels: tuple[str, str] = ("", "")
    style: str = "o-"
    scale: float = 1.0
    log: str = ""
    level: float | None = None
    name: str | None = None
    size: tuple[float, float] = (3.4, 3.2)
    title: str = "{}"

    def __call__(self, report: Report, data: Data) -> None:
        """Add the figure to a report, unless there are no rows."""
        rows = data.cases(self.rows, **self.where) if self.rows else [dict(self.where)]
        columns = data.cases(self.columns, **self.where) if self.columns else [{}]
        if self.panels is not None:
            columns = [column for column in columns if column[self.columns] in self.panels]
        if not (rows and columns):
            return
        figure, axes = plots.new(
            len(rows),
            len(columns),
            width=max(self.size[0] * len(columns), 6.0),
            height=self.size[1],
            squeeze=False,
            sharex=bool(self.rows),
            sharey=bool(self.rows),
        )
        for down, row in zip(axes, rows, strict=True):
            for axis, column in zip(down, columns, strict=True):
                panel = {**row, **column}
                self._panel(axis, data, panel)
                axis.set_title(
                    ", ".join(panel[name] for name in (self.rows, self.columns) if name), size=10
                )
            down[0].set_ylabel(self.labels[1])
        for axis in axes[-1]:
            axis.set_xlabel(self.labels[0])
        handles = {
            label: handle
            for axis in axes.flat
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(), handles, loc="outside upper center", ncols=min(len(handles), 6),
            fontsize=8,
        )  # fmt: skip
        report.figure(figure, self.caption, self.name)

    def _panel(self, axis: Any, data: Data, panel: Case) -> None:
        places = data.values(self.x, **panel)
        if self.order is not None:
            places = [place for place in self.order if place in places]
        numeric = all(_is_number(place) for place in places)
        lines = data.values(self.line, **self.where) if self.only is None else self.only
        for i, name in enumerate(lines):
            cases = data.cases(self.x, **panel, **{self.line: name})
            cases.sort(key=lambda case: places.index(case[self.x]))
            points = [(case[self.x], self.y(data, case)) for case in cases]
            points = [(place, y) for place, y in points if not np.isnan(y.mean)]
            if not points:
                continue
            shift = 0.0 if numeric or len(lines) == 1 else 0.4 * (i / (len(lines) - 1) - 0.5)
            x = [float(p) if numeric else places.index(p) + shift for p, _ in points]
            middle, low, high = self.scale * np.array([estimate for _, estimate in points]).T
            spread = [np.nan_to_num(middle - low), np.nan_to_num(high - middle)]
            style = plots.style(name, i) | _STYLES.get(self.style, {})
            axis.errorbar(
                x, middle, yerr=np.maximum(spread, 0.0), label=self.title.format(name), ms=4,
                lw=1.3, capsize=1.5, **style,
            )  # fmt: skip
        if not numeric:
            axis.set_xticks(range(len(places)), places, rotation=45, ha="right", size=8)
        for which in self.log:
            axis.set(**{f"{which}scale": "log"})
        if self.level is not None:
            axis.axhline(self.level, color=plots.FAINT, lw=0.8)


_STYLES: dict[str, dict[str, Any]] = {"o": {"linestyle": ""}}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _plainly(text: str) -> str:
    """Return a value of a record as text: 1 rather than 1.0, and 1,000 rather than 1000."""
    text = text.removesuffix(".0")
    return f"{int(text):,}" if text.isdecimal() else text


Item = str | Callable[[Report, Data], None]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph whose text is computed from the rows; none if the text is empty."""

    text: Callable[[Data], str]

    def __call__(self, report: Report, data: Data) -> None:
        """Add it to a report."""
        if text := self.text(data):
            report.paragraph(text)


@dataclass(frozen=True)
class DerivedParts:
    """Parts of a report that show other rows, which are computed from those of the record; nothing
    if there are none."""

    rows: Callable[[Data], Rows]
    content: Sequence[Item]

    def __call__(self, report: Report, data: Data) -> None:
        """Add them to a report."""
        if rows := self.rows(data):
            write(report, Data(rows), self.content)


@dataclass(frozen=True)
class Details:
    """Parts of a report that are folded under a summary."""

    summary: str
    content: Sequence[Item]

    def __call__(self, report: Report, data: Data) -> None:
        """Add them to a report."""
        with report.details(self.summary):
            write(report, data, self.content)


def write(report: Report, data: Data, content: Sequence[Item]) -> None:
    """Add the parts of a report to it; text is a paragraph."""
    for item in content:
        if isinstance(item, str):
            report.paragraph(item)
        else:
            item(report, data)
