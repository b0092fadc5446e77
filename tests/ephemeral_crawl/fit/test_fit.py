"""Fitting the model to logs: what is known of simulated fleets comes back, with honest errors;
tests of the assumptions have the size they state, and see what they are for."""

import ctypes
import math
import re
from pathlib import Path

import numpy as np
import pytest
import scipy

from crawl_env import DecayCurves, ItemLog, Sources
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.results import read_csv
from ephemeral_crawl.fit import checks, decay
from ephemeral_crawl.fit.command import Fit
from ephemeral_crawl.fit.lives import Lives
from tests.agents.inference.test_shrinkage import share_is


def poisson_log(rng, rate, span, unit="hour"):
    counts = rng.poisson(rate * span)
    source = np.repeat(np.arange(rate.size), counts)
    names = [f"s{i}" for i in range(rate.size)]
    times = rng.uniform(0, span, source.size)
    return ItemLog(names, source, times, np.ones(source.size), 0, span, unit=unit)


def with_votes(rng, log, votes, ages_of):
    """The log with utility = votes, whose ages (votes.sum(),) are seen at every half hour."""
    item = np.repeat(np.arange(len(log)), votes)
    look = np.arange(0.0, 60.5, 0.5)
    seen = np.minimum(np.floor(ages_of / 0.5).astype(int) + 1, look.size)
    gone = np.zeros((len(log), look.size + 1))
    np.add.at(gone, (item, seen), 1.0)
    told = np.flatnonzero(votes)
    left = 1 - np.cumsum(gone, axis=1)[told, : look.size] / votes[told, None]
    points = np.where(votes > 0, look.size, 0)
    curves = DecayCurves(
        np.concatenate(([0], np.cumsum(points))),
        np.tile(look, told.size),
        np.clip(left, 0, 1).ravel(),
    )
    return ItemLog(log.names, log.source, log.published, votes, log.start, log.end, curves)


# ------------------------------------------------------------------------------ decay


def in_threads(number):
    """Let numpy and scipy multiply in so many threads; return in how many libraries they do."""
    did = 0
    for package in (np, scipy):
        name = Path(package.__file__).parent.name
        for file in Path(package.__file__).parents[1].glob(f"{name}.libs/*openblas*"):
            library = ctypes.CDLL(str(file))
            for suffix in ("64_", ""):
                if hasattr(library, f"scipy_openblas_set_num_threads{suffix}"):
                    getattr(library, f"scipy_openblas_set_num_threads{suffix}")(number)
                    did += getattr(library, f"scipy_openblas_get_num_threads{suffix}")() == number
    return did


def test_decay_does_not_depend_on_the_number_of_threads():
    log, answers = decaying_log(1.0, n=8)[1], set()
    for threads in (2, 1):
        if in_threads(threads) < 2:
            pytest.skip("the threads of this numpy or scipy cannot be set")
        found = decay.measure(log)
        answers.add((found.rate.value.tobytes(), found.rate.error.tobytes(), found.stretch))
    assert len(answers) == 1


def test_decay_does_not_depend_on_the_unit_of_time():
    _, log = decaying_log(1.0, n=4)
    curves = DecayCurves(log.curves.first, log.curves.age / 24, log.curves.remaining)
    days = ItemLog(
        log.names, log.source, log.published / 24, log.utility, 0, 1000 / 24, curves, unit="day"
    )
    assert decay.measure(days).rate.value / 24 == pytest.approx(decay.measure(log).rate.value)


def test_exponentials_are_fitted_as_by_scipy():
    from scipy.optimize import curve_fit

    rng = np.random.default_rng(4)
    ages = np.linspace(0, 24, 49)
    for rate in (0.003, 0.05, 0.3, 2.0):
        noisy = np.clip(np.exp(-rate * ages) + rng.normal(0, 0.02, 49), 0, 1)
        by_scipy = curve_fit(lambda t, m: np.exp(-m * t), ages, noisy, p0=[rate])[0][0]
        assert decay.exponential_rate(ages, noisy) == pytest.approx(by_scipy, rel=1e-5)


@pytest.mark.parametrize(("rate", "second"), [(0.2, 0.7), (0.3, 1.5)])
def test_other_shapes_are_told_from_an_exponential(rate, second):
    ages = np.linspace(0, 24, 49)
    assert decay.stretched(ages, np.exp(-((rate * ages) ** second)))[:2] == pytest.approx(
        (rate, second), rel=1e-4
    )
    assert decay.lomax(ages, (1 + rate * ages / second) ** -second)[:2] == pytest.approx(
        (rate, second), rel=1e-3
    )


def decaying_log(beta, n=100, spread=0.3):
    rng = np.random.default_rng(5)
    log = poisson_log(rng, rng.uniform(15, 80, n) / 1000, 1000.0)
    true = 0.2 * rng.lognormal(0, spread, n)
    votes = rng.poisson(20 * rng.lognormal(-0.32, 0.8, len(log)))
    scale = np.repeat(1 / true[log.source], votes)
    ages = scale * rng.weibull(beta, votes.sum())
    return true, with_votes(rng, log, votes, ages)


def test_decay_rates_come_back_with_honest_errors():
    true, log = decaying_log(beta=1.0)
    found = decay.measure(log)
    # Linear between looks half an hour apart: no bias worth the name.
    assert np.median(found.rate.value / true) == pytest.approx(1, abs=0.02)
    assert share_is(np.abs(found.rate.value - true) < 1.96 * found.rate.error, 0.95, 0.02)
    own = np.log(found.rate.raw / true) / (found.rate.raw_error / found.rate.raw)
    assert np.sqrt((own**2).mean()) == pytest.approx(1, abs=0.17)
    assert share_is(found.p < 0.05, 0.05, 0.02)
    assert not checks.failing(found.p).any()
    off, off_raw = (np.mean((x - true) ** 2) for x in (found.rate.value, found.rate.raw))
    assert off < off_raw


def test_decay_that_is_not_exponential_is_seen():
    _, log = decaying_log(beta=0.6, n=25, spread=0.0)
    found = decay.measure(log)
    assert (found.p < 0.05).mean() > 0.9
    beta, error = found.stretch
    assert abs(beta - 0.6) < 4 * error + 0.02
    assert found.shapes["stretched exponential"][1] < 0.2 * found.shapes["exponential"][1]


def test_sources_without_curves_have_the_fleets_decay():
    _, log = decaying_log(beta=1.0, n=12, spread=0.0)
    assert log.curves is not None
    kept = np.flatnonzero(log.source > 0)
    points = np.zeros(len(log), dtype=int)
    points[kept] = log.curves.points[kept]
    some = log.curves.select(kept)
    curves = DecayCurves(np.concatenate(([0], np.cumsum(points))), some.age, some.remaining)
    less = ItemLog(log.names, log.source, log.published, log.utility, 0, 1000, curves)
    found = decay.measure(less)
    assert found.counts[0] == 0
    assert found.rate.value[0] == pytest.approx(found.rate.mean)
    assert np.isnan(found.p[0])
    assert np.isfinite(found.rate.error).all()


# ------------------------------------------------------------------------------ assumptions


def checked(log):
    """Return all four checks of a log."""
    dispersion = checks.dispersion(log)
    return {
        "dispersion": dispersion,
        "gaps": checks.gaps(log),
        "drift": checks.drift(log, dispersion.statistic),
        "daily cycle": checks.cycle(log, dispersion.statistic),
    }


@pytest.mark.parametrize("unit", ["hour", "day"])
def test_poisson_sources_fail_as_often_as_stated(unit):
    rng = np.random.default_rng(6)
    scale = 1.0 if unit == "hour" else 1 / 24
    log = poisson_log(rng, rng.uniform(20, 200, 300) / 2400 / scale, 2400.0 * scale, unit)
    for name, (_, p) in checked(log).items():
        assert share_is(p < 0.05, 0.05), name
        assert share_is(p < 0.5, 0.5, 0.08), name  # dispersion is discrete: p is a little too large
        assert checks.failing(p).sum() <= 2, name


def test_sources_with_few_items_are_not_tested():
    log = poisson_log(np.random.default_rng(0), np.full(20, 0.005), 1000.0)
    for check in checked(log).values():
        assert np.isnan(check.p[np.bincount(log.source, minlength=20) < 10]).all()


def bursty(rng):
    parents = poisson_log(rng, np.full(40, 0.02), 2400.0)
    each = rng.integers(1, 7, len(parents))
    source, times = np.repeat(parents.source, each), np.repeat(parents.published, each)
    times = np.clip(times + rng.exponential(2.0, times.size), 0, 2399)
    return ItemLog(parents.names, source, times, np.ones(times.size), 0, 2400)


def regular(rng):
    times = (np.arange(100)[:, None] * 24 + rng.uniform(0, 24, (100, 40))).T.ravel()
    names = [f"s{i}" for i in range(40)]
    return ItemLog(names, np.repeat(np.arange(40), 100), times, np.ones(4000), 0, 2400)


def drifting(rng):
    log = poisson_log(rng, np.full(40, 0.04), 2400.0)
    return ItemLog(
        log.names, log.source, 2400 * (log.published / 2400) ** 0.6, log.utility, 0, 2400
    )


def cyclic(rng):
    log = poisson_log(rng, np.full(40, 0.12), 2400.0)
    busy = 0.5 + 0.45 * np.sin(2 * np.pi * log.published / 24)
    kept = rng.random(len(log)) < busy
    return ItemLog(log.names, log.source[kept], log.published[kept], np.ones(kept.sum()), 0, 2400)


SEEN = {  # which checks must see it, which must not
    bursty: (["dispersion", "gaps"], ["drift", "daily cycle"]),
    regular: (["dispersion"], ["drift", "daily cycle"]),
    drifting: (["drift"], ["daily cycle"]),
    cyclic: (["daily cycle"], ["dispersion", "gaps", "drift"]),
}


@pytest.mark.parametrize("make", SEEN, ids=lambda make: make.__name__)
def test_each_check_sees_what_it_is_for_and_nothing_else(make):
    found = checked(make(np.random.default_rng(7)))
    seen, not_seen = SEEN[make]
    for name in seen:
        assert checks.failing(found[name].p).mean() > 0.8, name
    for name in not_seen:
        assert checks.failing(found[name].p).mean() < 0.1, name


def test_the_size_of_what_is_seen_is_right():
    rng = np.random.default_rng(8)
    log = cyclic(rng)
    counts, ratio, error = checks.busiest_over_quietest(log, 24)
    assert counts.sum() == len(log)
    assert abs(ratio - 19) < 4 * error  # .95 / .05, a little less within whole hours
    assert np.median(checks.cycle(log).statistic) == pytest.approx(0.45, abs=0.04)
    assert np.median(checks.dispersion(poisson_log(rng, np.full(50, 0.1), 9000.0)).statistic) == (
        pytest.approx(1.0, abs=0.05)
    )
    assert np.median(checks.drift(drifting(rng)).statistic) == pytest.approx(
        (1 - 0.5 ** (1 / 0.6)) / 0.5 ** (1 / 0.6), rel=0.15
    )


def test_items_recorded_by_looking_now_and_then_pass_as_poisson():
    rng = np.random.default_rng(9)
    exact = poisson_log(rng, np.full(100, 0.4), 2400.0)
    looks = np.ceil(exact.published * 2) / 2
    coarse = ItemLog(exact.names, exact.source, looks, exact.utility, 0, 2401)
    assert checks.resolution(exact) == 0.0
    assert checks.resolution(coarse) == 0.5
    assert share_is(checks.gaps(coarse).p < 0.05, 0.05, 0.02)


def test_lilliefors_distances_are_those_of_the_literature():
    """Stephens 1974, exponential with estimated mean: the upper 5 % of his statistic is 1.094."""
    assert np.quantile(checks._null(), 0.95) == pytest.approx(1.094, abs=0.012)
    assert np.quantile(checks._null(), 0.99) == pytest.approx(1.308, abs=0.025)
    draws = np.sort(np.random.default_rng(1).standard_exponential((20_000, 10)), axis=1)
    few = checks._stephens(checks._distance(draws / draws.mean(axis=1, keepdims=True)), 10)
    assert np.quantile(few, 0.95) == pytest.approx(1.094, abs=0.015)


def test_false_alarms_are_kept_in_bounds():
    rng = np.random.default_rng(10)
    shares = []
    for _ in range(300):
        null = np.arange(40) < 30
        p = np.where(null, rng.random(40), rng.beta(0.1, 10, 40))
        fails = checks.failing(p)
        shares.append((fails & null).sum() / max(fails.sum(), 1))
    assert np.mean(shares) < 0.05
    assert checks.failing(np.array([0.03, 0.04, 0.05])).all()
    assert not checks.failing(np.array([0.03, 0.06, 0.5])).any()
    assert not checks.failing(np.array([np.nan, np.nan])).any()


# ------------------------------------------------------------------------------ command


@pytest.fixture
def files(tmp_path):
    _, log = decaying_log(beta=1.0, n=6)
    log.to_csv(tmp_path / "items.csv.gz", tmp_path / "curves.csv.gz")
    return tmp_path / "items.csv.gz", tmp_path / "curves.csv.gz"


def noted_figures(monkeypatch):
    """Return a list that gets what `plots.new` makes."""
    drawn, new = [], plots.new
    monkeypatch.setattr(
        plots, "new", lambda *args, **k: (drawn.append(new(*args, **k)), drawn[-1])[1]
    )
    return drawn


def numbers_drawn(drawn):
    """Return how many sources the figures of rates and of decay rates draw."""
    axes = drawn[0][1][0], drawn[2][1][1]
    return [len(axis.containers[0].lines[0].get_xydata()) for axis in axes]


def test_the_command_writes_a_fleet_that_can_be_read(files, tmp_path, capsys, monkeypatch):
    drawn = noted_figures(monkeypatch)
    out, report = tmp_path / "fleet.csv", tmp_path / "report"
    Fit(items=files[0], out=out, curves=files[1], report=report, since="0", until="1000").run()
    fleet = Sources.from_csv(out)
    rows = read_csv(report / "estimates.csv")
    assert [row["source"] for row in rows] == list(fleet.names)
    assert [float(row["decay_rate"]) for row in rows] == fleet.decay_rate.tolist()
    assert [float(row["arrival_rate"]) for row in rows] == fleet.arrival_rate.tolist()
    log = ItemLog.from_csv(files[0])
    assert fleet.arrival_rate.sum() == pytest.approx(len(log) / 1000, rel=0.01)
    page = (report / "report.html").read_text(encoding="utf-8")
    for word in ("is rejected for", "half-life", "Benjamini", "<svg"):
        assert word in page or (word == "is rejected for" and "Not rejected for any source" in page)
    assert numbers_drawn(drawn) == [6, 6]
    assert "Drawn are" not in page
    assert "ephemeral-crawl evaluate --sources" in capsys.readouterr().out


def test_figures_draw_some_of_many_sources(files, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "DRAWN", 4)
    drawn = noted_figures(monkeypatch)
    out, report = tmp_path / "fleet.csv", tmp_path / "report"
    Fit(items=files[0], out=out, curves=files[1], report=report, since="0", until="1000").run()
    assert numbers_drawn(drawn) == [4, 4]
    assert "Drawn are 4 of 6 sources." in (report / "report.html").read_text(encoding="utf-8")
    assert len(Sources.from_csv(out)) == 6


def test_the_status_of_all_sources_is_found_once_and_not_for_each(files, tmp_path, monkeypatch):
    found, status = [], Lives.status.fget
    monkeypatch.setattr(Lives, "status", property(lambda self: (found.append(1), status(self))[1]))
    common = {"half_life": "3h", "out": tmp_path / "fleet.csv", "report": tmp_path / "r"}
    Fit(items=files[0], since="0", until="1000", **common).run()
    assert len(found) <= 3 < len(Sources.from_csv(tmp_path / "fleet.csv"))


def test_decay_may_be_given_and_part_of_the_log_taken(files, tmp_path):
    log, out = ItemLog.from_csv(files[0]), tmp_path / "fleet.csv"
    counts = np.sort(np.bincount(log.source[log.published >= 500], minlength=6))
    common = {"half_life": "3h", "out": out, "report": tmp_path / "r"}
    Fit(items=files[0], since="500", until="1000", min_items=int(counts[2]), **common).run()
    fleet = Sources.from_csv(out)
    assert fleet.decay_rate.tolist() == [math.log(2.0) / 3.0] * 4
    assert fleet.arrival_rate.sum() == pytest.approx(counts[2:].sum() / 500, rel=0.01)


def test_a_tiny_log_is_fitted_too(tmp_path):
    (tmp_path / "i.csv").write_text(
        "source,published\na,2024-05-01T10:00Z\nb,2024-05-02T11:30Z\na,2024-05-03T09:00Z\n"
    )
    out = tmp_path / "fleet.csv"
    Fit(
        items=tmp_path / "i.csv", half_life="7h", out=out, report=tmp_path / "r", until="2024-05-04"
    ).run()
    assert Sources.from_csv(out).mean_utility.tolist() == [1.0, 1.0]
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert "no source has enough items" in page


def test_a_log_of_one_item_is_fitted_with_unknown_errors(tmp_path):
    (tmp_path / "i.csv").write_text("source,published,utility\na,2024-05-01T10:00Z,7\n")
    (tmp_path / "p.csv").write_text("source,time\na,2024-05-01T10:01Z\n")
    common = {"half_life": "3h", "out": tmp_path / "fleet.csv", "report": tmp_path / "r"}
    Fit(items=tmp_path / "i.csv", signals=tmp_path / "p.csv", until="2024-05-04", **common).run()
    assert Sources.from_csv(tmp_path / "fleet.csv").mean_utility.tolist() == [7.0]
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert "1 item of 1 source from" in page
    assert "1 ping of 1 source." in page
    assert not re.search(r"\b1 (sources|items|pings)\b", page)
    assert "<span>7</span> <small>± n/a</small>" in page
    assert [row["mean_utility_error"] for row in read_csv(tmp_path / "r" / "estimates.csv")] == [""]


WRONG = {
    "no decay": ({}, "neither of --half-life and --curves"),
    "both": ({"half_life": "42min", "curves": Path("c.csv")}, "both of --half-life and --curves"),
    "no unit": ({"half_life": "3"}, "--half-life is .3., without a unit"),
    "not a csv": ({"half_life": "42min", "out": Path("results")}, "CSV of the fleet"),
    "bad time": ({"half_life": "42min", "since": "2024-05-01"}, "--from is '2024-05-01', but"),
    "nothing left": ({"half_life": "42min", "min_items": 10_000}, "smaller --min-items"),
    "empty part": ({"half_life": "42min", "since": "5000", "until": "6000"}, "which has 0 items"),
    "backwards": ({"half_life": "42min", "since": "9", "until": "5"}, "end must be after start"),
    "unknown unit": ({"half_life": "42min", "unit": "year"}, "unknown unit"),
}


def test_what_is_wrong_is_said_before_anything_is_written(files, tmp_path):
    for options, message in WRONG.values():
        options = {"out": tmp_path / "fleet.csv", "report": tmp_path / "r", **options}
        with pytest.raises(ValueError, match=message):
            Fit(items=files[0], **options).run()
        assert not (tmp_path / "fleet.csv").exists()
        assert not (tmp_path / "r").exists()


def test_the_report_names_the_source_that_fails_and_how(tmp_path, capsys):
    rng = np.random.default_rng(12)
    steady, burst = poisson_log(rng, np.full(5, 0.1), 2400.0), bursty(rng)
    times = burst.published[burst.source == 0]
    source = np.concatenate((steady.source, np.full(times.size, 5)))
    both = ItemLog(
        [*steady.names, "burster"],
        source,
        np.concatenate((steady.published, times)),
        np.ones(source.size),
    )
    both.to_csv(tmp_path / "i.csv")
    Fit(
        items=tmp_path / "i.csv", out=tmp_path / "f.csv", half_life="7h", report=tmp_path / "r"
    ).run()
    said = capsys.readouterr().out
    assert "“Items are not published in bursts” is rejected for 1 of 6 sources" in said
    assert "variance / mean of daily counts: burster" in said
    assert (
        "Not rejected for any source: “Rates are constant”, “Rates do not depend on the hour”"
        in said
    )
    fails = {row["source"]: row["fails"] for row in read_csv(tmp_path / "r" / "estimates.csv")}
    assert fails == {**dict.fromkeys(steady.names, ""), "burster": "bursts; gaps"}


def test_the_log_is_not_overwritten(files, tmp_path):
    log = tmp_path / "items.csv"
    log.write_text("source,published\na,1\n")
    with pytest.raises(ValueError, match="is an input of this command"):
        Fit(items=log, half_life="42min", out=log, report=tmp_path / "r").run()


@pytest.mark.parametrize(("out", "report"), [("below/f.csv", "r"), ("f.csv", "below/r")])
def test_places_that_cannot_be_written_are_refused_before_the_work(files, tmp_path, out, report):
    (tmp_path / "below").touch()
    option = "--out" if "/" in out else "--report"
    with pytest.raises(ValueError, match=rf"{option} .*below.* cannot be created"):
        Fit(items=files[0], half_life="42min", out=tmp_path / out, report=tmp_path / report).run()
