"""A schedule from a log spends the budget, and is worth what a simulation of it collects."""

from pathlib import Path

import numpy as np
import pytest

from agents.theory.schedule import relaxed_schedule
from crawl_env import Sources
from ephemeral_crawl import __main__ as cli
from ephemeral_crawl.core.results import read_csv
from ephemeral_crawl.example import Example
from ephemeral_crawl.schedule import collected


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("schedule"))
        Example().run()
        yield patch


def made(*words):
    items = [] if "--items" in words else ["--items", "example/log.csv"]
    cli.main(["schedule", *items, *words])
    return read_csv(Path("results/schedule/schedule.csv"))


def test_the_schedule_spends_the_budget(folder, capsys):
    rows = made("--budget", "3/h", "--half-life", "6h")
    spent = sum(1 / float(row["interval"]) for row in rows if row["interval"])
    assert spent == pytest.approx(3, rel=1e-4)
    said = capsys.readouterr().out
    assert "The schedule collects" in said
    assert "equal intervals" in said
    limited = made("--budget", "72/d", "--half-life", "6h", "--max-interval", "24h")
    assert max(float(row["interval"]) for row in limited) == pytest.approx(24)
    assert sum(1 / float(row["interval"]) for row in limited) == pytest.approx(3, rel=1e-4)
    assert "in 24h costs" in capsys.readouterr().out


def test_two_sources_by_hand(folder, capsys):
    """Rates 2 and 1/4 an hour, worths 1 and 4, one fetch an hour, worth halves in 3 hours. Where
    f(x) = ΛW x(1 − e^−μ/x)/μ is what x fetches an hour collect, the largest f₁(x) + f₂(1 − x) is at
    x = .60075 (found by bisection of the derivative), 80.65 % of 3; at x = ½ it is .71 % less."""
    times = [(k + 0.5) / 2 for k in range(1920)], [4 * (k + 0.5) for k in range(240)]
    rows = sorted(
        (t / 24, name, w) for at, name, w in zip(times, "ab", (1, 4), strict=True) for t in at
    )
    text = "".join(f"{name},{t!r},{w}\n" for t, name, w in rows)
    Path("two.csv").write_text("source,published,utility\n" + text, encoding="utf-8")
    options = ["--items", "two.csv", "--unit", "day", "--budget", "1/h", "--half-life", "3h"]
    intervals = {row["source"]: 24 * float(row["interval"]) for row in made(*options)}
    assert intervals == pytest.approx({"a": 1 / 0.60075, "b": 1 / 0.39925}, rel=0.01)
    assert "collects 80.6% of all utility" in capsys.readouterr().out
    made(*options, "--max-interval", "2h")
    assert "in 2h costs 0.7%" in capsys.readouterr().out


def test_present_intervals_and_curves(folder, capsys):
    made("--budget", "3/h", "--curves", "example/curves.csv", "--present", "example/intervals.csv")
    assert "times its fetches, with which a schedule would collect" in capsys.readouterr().out
    # A minute is shorter than any step of the schedule, and what is fetched now all the same.
    names = {row["source"] for row in read_csv(Path("example/intervals.csv"))}
    rows = "".join(f"{name},{1 / 60 if name == 'city-news' else ''}\n" for name in names)
    Path("minute.csv").write_text("source,interval\n" + rows, encoding="utf-8")
    made("--budget", "3/h", "--half-life", "6h", "--present", "minute.csv")
    assert "the present intervals 21.0% with 20 times its fetches" in capsys.readouterr().out


def test_what_equal_intervals_collect():
    fleet = Sources([1.0, 3.0, 2.0], [2.0, 1.0, 1.0], [0.5, 0.1, 0.3], period=0.01)
    best = relaxed_schedule(fleet, budget=0.01)
    found = collected(fleet, best.crawls / 0.01) * 0.01
    np.testing.assert_allclose(found, best.reward, rtol=2e-3)  # the schedule is in whole steps
    assert not collected(fleet, np.zeros(3)).any()


def test_sources_with_few_items_are_named(folder, capsys):
    days = range(1, 11)
    rows = [f"often,2026-01-{day:02}" for day in days] + ["rare,2026-01-05"]
    Path("few.csv").write_text("\n".join(["source,published", *rows]), encoding="utf-8")
    often, rare = made("--items", "few.csv", "--budget", "1/h", "--half-life", "3h")
    said = capsys.readouterr().out
    assert "1 of 2 sources has fewer than 5 items in the log" in said
    assert "those of the others" in said
    assert "rare (1 item; 0.00" in said
    assert "often (" not in said
    for row, hours in ((often, 21.6), (rare, 216)):
        assert float(row["rate_low"]) < 1 / hours < float(row["rate_high"])
    assert (often["items"], rare["items"]) == ("10", "1")


def test_sources_that_fell_silent_are_named(folder, capsys):
    rows = [f"{name},{t}.5" for name, end in (("often", 80), ("gone", 40)) for t in range(end)]
    Path("gone.csv").write_text("\n".join(["source,published", *rows]), encoding="utf-8")
    words = ["--items", "gone.csv", "--budget", "1/h", "--half-life", "3h"]
    reasons = {row["source"]: row["reason"] for row in made(*words, "--max-interval", "24h")}
    said = " ".join(capsys.readouterr().out.split())
    assert "1 source fell silent before the end of the log, and nothing more is expected" in said
    assert "of it: gone. In schedule.csv" in said
    assert reasons["gone"] == "at the maximum interval; without it, never: publishes nothing"


def test_a_log_at_whose_end_no_source_publishes_is_refused(folder):
    rows = [f"gone,{t}.5,1" for t in range(40)] + [f"worthless,{t}.5,0" for t in range(80)]
    Path("silent.csv").write_text("\n".join(["source,published,utility", *rows]))
    with pytest.raises(SystemExit) as stop:
        made("--items", "silent.csv", "--budget", "1/h", "--half-life", "3h")
    said = str(stop.value)
    assert "no source publishes anything of any utility at the end of the log" in said
    assert "--" not in said  # options that this command has not
