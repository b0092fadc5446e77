"""Pages: what they show is escaped, complete, and the same every time."""

import base64
import hashlib
import re
import sys
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest

from agents import AGENTS
from ephemeral_crawl.core import plots, results
from ephemeral_crawl.core.report import Report, made_by, sort_key
from experiments.benchmark.entrants import ENTRANTS

HOSTILE = "<script>alert(1)</script>"
NAMES = (HOSTILE, 'a $x_$ & "b"', "<img src=x onerror=alert(2)>", "--><b>", "]]></style>")
PLAIN = tuple(f"name {i}" for i in range(len(NAMES)))


def drawing(names=NAMES):
    figure, axes = plots.new(1, 2)
    for axis in axes:
        for i, name in enumerate(names):
            axis.plot([0, 1], [0, 1], label=name, **plots.style(name, i))
            axis.fill_between([0, 1], [0, 0.9], [0.1, 1], label=f"_{name}")
        axis.set(title=names[0], xlabel=names[-1])
    axes[1].legend()
    return figure


@cache
def page_of(*names):
    report = Report(f"About {names[0]}", quiet=True)
    report.answer(f"It is {names[0]}.")
    report.heading(f"On {names[0]}")
    report.table(f"Table of {names[0]}", ["agent", names[0]], [[name, 1] for name in names])
    report.figure(drawing(names), f"Figure of {names[0]}", alt=f"It shows {names[0]}")
    with report.details(f"More on {names[0]}"):
        report.paragraph(f"Of {names[0]}")
        report.figure(drawing(names), f"Another of {names[0]}")
    return report.html([{"commit": names[0], "command": names[1], "date": "2026-11-20"}])


class Elements(HTMLParser):
    """The elements of a page, their attributes, and its text outside of scripts and styles."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.shown, self.inside = [], "", ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag

    def handle_data(self, data):
        if self.inside not in ("script", "style"):
            self.shown += data


@pytest.mark.parametrize("terminal", [True, False])
def test_a_figure_with_a_name_is_also_a_picture_beside_the_page(
    tmp_path, capsys, monkeypatch, terminal
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    report = Report("A")
    report.answer("It is.")
    report.figure(drawing(NAMES[:1]), "Figure", name="first")
    assert ("drawing figure 1" in capsys.readouterr().err) == terminal
    report.write(tmp_path / "report.html")
    picture = (tmp_path / "first.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert b"Software" not in picture  # whose version would make it another file


def test_hostile_names_are_text_everywhere():
    page = page_of(*NAMES)
    found, expected = Elements(page), Elements(page_of(*PLAIN))
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in expected.elements]
    assert [set(of) for _, of in found.elements] == [set(of) for _, of in expected.elements]
    assert not any(key.startswith("on") for _, of in found.elements for key in of)
    for name in NAMES:
        assert found.shown.count(name) >= 3, name  # in the table and in two legends
    assert page.count("<script") == 1


def test_a_page_loads_nothing_and_runs_only_its_own_script():
    page = page_of(*PLAIN)
    for _, attributes in Elements(page).elements:
        for key, value in attributes.items():
            if key in ("src", "href", "xlink:href"):
                assert value.startswith(("#", "data:")), value
    assert "url(http" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    script = re.search(r"<script>(.*?)</script>", page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


def test_identifiers_are_unique_and_references_are_to_them():
    elements = Elements(page_of(*PLAIN)).elements
    names = [of["id"] for _, of in elements if "id" in of]
    assert len(names) > 20
    assert len(names) == len(set(names))
    references = [v[1:] for _, of in elements for k, v in of.items() if k == "xlink:href"]
    page = page_of(*PLAIN)
    references += re.findall(r"url\(#([^)]+)\)", page) + re.findall(r'href="#([^"]+)"', page)
    assert references
    assert set(references) <= set(names)


def test_the_same_report_is_the_same_page():
    assert page_of(*PLAIN) == page_of.__wrapped__(*PLAIN)


def test_a_curve_its_band_and_its_entry_belong_together():
    elements = Elements(page_of(*PLAIN)).elements
    for number in "01":
        kinds = [of["class"] for _, of in elements if of.get("data-series") == number]
        # Two figures, each with two panels of a line and a band, and an entry of a line and a text.
        assert kinds.count("series") == 8
        assert kinds.count("entry") == 4


def test_figures_follow_the_colours_of_the_page():
    page = page_of(*PLAIN)
    assert "var(--ink)" in page
    assert plots.INK not in page.partition("</style>")[2]


def test_an_answer_is_required(capsys):
    report = Report("Nothing")
    with pytest.raises(ValueError, match="no answer"):
        report.html()
    report.heading("Later")
    report.answer("It is 2.")
    page = report.html()
    assert page.index("It is 2.") < page.index("Later</h2>"), "the answer comes first"
    assert "It is 2." in capsys.readouterr().out


def test_control_characters_of_names_do_not_reach_a_terminal(capsys):
    report = Report("Title")
    report.table("Sources", ("source", "items"), [["\x1b[2J\u202ename\x9b", 3]])
    printed = capsys.readouterr().out
    assert "\\x1b[2J\\u202ename\\x9b" in printed
    assert all(c == "\n" or c.isprintable() for c in printed)


def test_what_made_the_rows_is_told_apart_from_what_rendered_them():
    report = Report("Old rows", quiet=True)
    report.answer("Yes.")
    old = {"commit": "0ld", "date": "2020-01-02", "command": "python -m old", "machine": "Z80"}
    page = Elements(report.html([old, old, {"x": 1}])).shown
    made = re.search(r"Results \(2 rows\): 2020-01-02, commit 0ld, python -m old, on Z80", page)
    assert made
    assert "0ld" not in page[page.index("This page: rendered") :]
    installed = Elements(report.html([{**old, "commit": "version 0.1.0"}])).shown
    assert re.search(r"2020-01-02, version 0\.1\.0, python -m old", installed)
    several = made_by([old, {**old, "commit": "n3w"}, old])
    assert [(m["rows"], m["commit"]) for m in several] == [(2, "0ld"), (1, "n3w")]


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("12.3 % [11, 14]", 12.3),
        ("1,234,567", 1234567),
        ("−0.5", -0.5),
        ("-.25 ± .1", -0.25),
        ("1.2e-3 ± 4e-5", 0.0012),
        ("36k", 36e3),
        ("1.2M, 30", 1.2e6),
        ("5 km", 5),
        ("5 of 12", 5),
        ("n/a", None),
        ("–", None),
        ("", None),
    ],
)
def test_numbers_by_which_cells_are_sorted(cell, number):
    assert sort_key(cell) == number


def test_tables_sort_by_number_where_a_column_has_numbers():
    report = Report("Sorted", quiet=True)
    report.answer("Yes.")
    report.table("T", ["agent", "score", "sees"], [["b", "1.5 [1, 2]", "ages"], ["a", "n/a", ""]])
    cells = [of for tag, of in Elements(report.html()).elements if tag == "td"]
    assert [of.get("data-number") for of in cells] == ["1.5", None, None, None]
    assert [of.get("class") for of in cells] == [None, "words", None, "words"]


def test_sentences_wrap_and_sort_as_text_even_if_they_begin_with_a_number():
    report = Report("Sentences", quiet=True)
    report.answer("Yes.")
    sentence = "4 episodes, 2,000 steps; the environment made from the stored spec repeats them"
    report.table("T", ["library", "result"], [["a", sentence], ["b", "score 1"]])
    cells = [of for tag, of in Elements(report.html()).elements if tag == "td"]
    assert cells == [{"class": "words long"}] * 2


def test_code_between_backticks_is_escaped_too():
    report = Report("Code", quiet=True)
    report.answer("Yes.")
    report.paragraph("See `a <b>` and <i>.")
    assert "<p>See <code>a &lt;b&gt;</code> and &lt;i&gt;.</p>" in report.html()


def test_learners_can_be_told_apart():
    names = [entrant.learner for entrant in ENTRANTS]
    styles = [tuple(plots.style(name).values()) for name in names]
    assert len(names) == len(set(styles))
    assert set(names) <= set(plots.STYLES)


def test_policies_differ_in_colour():
    colours = {name: plots.STYLES[name][0] for name in AGENTS}
    assert len(set(colours.values())) == len(AGENTS)


def test_palette_is_readable_on_white_and_on_dark():
    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for colour in plots.PALETTE + plots.MORE:
        light = luminance(colour)
        assert 1.05 / (light + 0.05) > 1.9, f"{colour} on white"
        assert (light + 0.05) / (luminance("#16181c") + 0.05) > 2.9, f"{colour} on dark"


def test_a_report_does_not_tell_the_salt(monkeypatch):
    """A report has the command that made it, and with it had the secret of an organiser."""
    words = ["benchmark", "--salt", "x=y", "--out", "/home/me/out", "--salt=x=y", "--tasks=core"]
    monkeypatch.setattr(sys, "argv", ["ephemeral-crawl", *words])
    results.provenance.cache_clear()
    command = results.provenance()["command"]
    results.provenance.cache_clear()
    assert command == "ephemeral-crawl benchmark --salt … --out out --salt=… --tasks=core"
