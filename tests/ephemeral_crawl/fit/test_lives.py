"""New and dead sources: found as often as stated, and fitted over their own lives."""

import numpy as np
import pytest
from scipy import stats

from agents.inference import shrinkage
from crawl_env import ItemLog, Sources
from ephemeral_crawl.core.log_options import LogOptions
from ephemeral_crawl.core.results import read_csv
from ephemeral_crawl.fit import checks
from ephemeral_crawl.fit.command import Fit
from ephemeral_crawl.fit.lives import LEVEL, lives, throughout

SPAN = 1000.0


def poisson_log(rng, rate, birth=0.0, death=SPAN):
    source = np.repeat(np.arange(rate.size), rng.poisson(rate * (death - birth)))
    times = rng.uniform(birth, death, source.size)
    return ItemLog(list(map(str, range(rate.size))), source, times, times * 0 + 1, 0, SPAN)


@pytest.mark.parametrize("items", [5.0, 10.0, 40.0])
def test_steady_sources_are_flagged_as_rarely_as_stated(items):
    """At most 20 of 20,000 on average at each end: 36 or more once in 2,000."""
    found = lives(poisson_log(np.random.default_rng(int(items)), np.full(20_000, items / SPAN)))
    limit = stats.binom.ppf(1 - 1 / 2000, 20_000, LEVEL)
    assert found.new.sum() <= limit
    assert found.dead.sum() <= limit


def test_sources_in_bursts_are_not_taken_for_dead():
    """Twenty bursts of ten items: n counts for ten times what it should, but the gaps do not."""
    rng = np.random.default_rng(0)
    bursts = poisson_log(rng, np.full(2000, 20 / SPAN))
    times = np.clip(
        np.repeat(bursts.published, 10) + rng.exponential(0.5, 10 * len(bursts)), 0, 999
    )
    log = ItemLog(bursts.names, np.repeat(bursts.source, 10), times, times * 0 + 1, 0, SPAN)
    found = lives(log)
    assert found.dead.mean() < 0.015  # 2 / (21 · 22) is 0.4 %, more where there are fewer bursts
    assert found.new.mean() < 0.015


@pytest.mark.parametrize(
    ("items", "gaps", "power"), [(10, 20, 0.88), (30, 15, 0.97), (30, 20, 0.99), (1000, 25, 0.98)]
)
def test_silence_is_found_with_the_power_stated(items, gaps, power):
    life = SPAN * items / (items + gaps)
    rate = np.full(1000, items / life)
    rng = np.random.default_rng(items)
    dead = lives(poisson_log(rng, rate, 0, life))
    new = lives(poisson_log(rng, rate, SPAN - life, SPAN))
    assert dead.dead.mean() > power
    assert new.new.mean() > power
    assert dead.new.mean() < 0.01
    assert new.dead.mean() < 0.01


def test_the_rate_is_that_of_the_life():
    """Unbiased: the items that delimit a life do not count."""
    rng = np.random.default_rng(1)
    for birth, death in ((0.0, 500.0), (500.0, SPAN), (300.0, 700.0)):
        log = poisson_log(rng, np.full(250, 0.1), birth, death)
        alive = lives(log)
        assert (alive.dead == (death < SPAN)).mean() > 0.99
        raw = alive.counts(log) / alive.span
        assert raw.mean() == pytest.approx(0.1, abs=4 * raw.std() / np.sqrt(250))
        assert shrinkage.rates(alive.counts(log), alive.span).mean == pytest.approx(0.1, rel=0.03)


def test_checks_look_at_the_life_only():
    log = poisson_log(np.random.default_rng(2), np.full(50, 0.2), 0, 600)
    alive = lives(log)
    assert alive.dead.all()
    for check in (checks.dispersion, lambda log, **x: checks.drift(log, **x)):
        assert (check(log).p < 0.05).mean() > 0.9
        assert (check(log, alive=alive).p < 0.05).mean() < 0.12


def test_lives_of_chosen_sources():
    times = {
        "steady": np.arange(0, 1000, 50),
        "dead": np.arange(0, 200, 10),
        "new": np.arange(700, 1000, 10),
        "both": np.arange(400, 500, 5),
        "few": np.array([1, 2, 3, 4]),
        "burst": np.array([500.0] * 6),
        "first": np.arange(5.0),
        "silent": np.zeros(0),
    }
    source = np.repeat(np.arange(len(times)), list(map(len, times.values())))
    log = ItemLog(
        list(times), source, np.concatenate(list(times.values())), source * 0 + 1, 0, 1000
    )
    found = lives(log)
    assert found.status == ["steady", "dead", "new", "dead", "steady", "dead", "dead", "steady"]
    assert found.start.tolist() == [0, 0, 700, 400, 0, 490, 0, 0]
    assert found.end.tolist() == [1000, 190, 1000, 495, 1000, 500, 10, 1000]
    assert found.counts(log).tolist() == [20, 19, 29, 18, 4, 4, 4, 0]
    assert np.isnan(found.first[-1])
    assert throughout(log).counts(log).tolist() == [len(x) for x in times.values()]


def log_with_a_dead_source(path, *rows):
    log = poisson_log(np.random.default_rng(3), np.full(8, 0.1))
    kept = (log.source != 3) | (log.published < 400)
    text = [f"s{s},{t:.3f}" for s, t in zip(log.source[kept], log.published[kept], strict=True)]
    path.write_text("\n".join(["source,published", *text, *rows]))
    return path


def test_the_command_names_the_dead_and_keeps_their_rate(tmp_path, capsys):
    out = tmp_path / "new" / "folder" / "fleet.csv"
    options = {"out": out, "report": tmp_path / "r", "half_life": "7h"}
    path = log_with_a_dead_source(tmp_path / "i.csv")
    Fit(items=path, **options).run()
    said = capsys.readouterr().out
    assert "Of the sources, 1 fell silent (dead) and 0 appeared" in said
    assert "Fell silent: 1 of 8 sources, kept in the fleet, with the rate before that" in said
    status = {row["source"]: row["status"] for row in read_csv(out)}
    assert status == {f"s{i}": "dead" if i == 3 else "steady" for i in range(8)}
    fleet = Sources.from_csv(out)
    assert fleet.arrival_rate[fleet.names.index("s3")] == pytest.approx(0.1, rel=0.3)
    (row,) = (row for row in read_csv(tmp_path / "r" / "estimates.csv") if row["source"] == "s3")
    assert row["status"] == "dead"
    assert 0 < float(row["first"]) < 100 < float(row["last"]) < 400
    Fit(items=path, **options, drop_dead=True).run()
    assert "s3" not in Sources.from_csv(out).names
    assert len(Sources.from_csv(out)) == 7
    log = ItemLog.from_csv(path)
    times = log.published[log.source == log.names.index("s5")]
    pings = tmp_path / "pings.csv"
    pings.write_text("source,time\n" + "".join(f"s5,{t + 0.01}\n" for t in times))
    Fit(items=path, signals=pings, **options, drop_dead=True).run()
    fleet = Sources.from_csv(out)
    assert fleet.names[int(fleet.recall.argmax())] == "s5"


def test_items_far_from_all_others_are_refused_or_dropped(tmp_path, capsys):
    path = log_with_a_dead_source(tmp_path / "i.csv", "s1,-475000", "s2,1e6")
    options = {"out": tmp_path / "f.csv", "report": tmp_path / "r", "half_life": "7h"}
    with pytest.raises(ValueError, match=r"2 of .* items lie far .* s2 at 1000000 hours, s1 at -4"):
        Fit(items=path, **options).run()
    with pytest.raises(ValueError, match=r"1 of .* items lie far .*: s2 at"):
        Fit(items=path, since="0", **options).run()
    assert not (tmp_path / "f.csv").exists()
    Fit(items=path, **options, drop_outliers=True).run()
    assert "They are left out." in capsys.readouterr().out
    dropped = Sources.from_csv(tmp_path / "f.csv")
    Fit(items=log_with_a_dead_source(tmp_path / "i.csv"), **options).run()
    assert dropped == Sources.from_csv(tmp_path / "f.csv")


def test_a_time_in_which_no_source_published_is_noted(tmp_path):
    log = poisson_log(np.random.default_rng(0), np.full(5, 0.1))

    def notes(is_kept):
        rows = zip(log.source[is_kept], log.published[is_kept], strict=True)
        path = tmp_path / "i.csv"
        path.write_text("source,published\n" + "".join(f"s{i},{t:.6f}\n" for i, t in rows))
        return LogOptions().read(path).notes

    assert notes(log.published >= 0.0) == ()
    (note,) = notes(abs(log.published - 500.0) > 100.0)
    assert "No source published anything between 39" in note
    assert "all rates are 20% too low" in note
    assert "as `fit` does with --from or --until" in note  # no other command has these options


def test_the_part_of_a_log_may_be_given_in_unix_seconds(tmp_path):
    start = 1_714_521_600  # 2024-05-01
    rows = "".join(f"a,{start + 3600 * hour}\n" for hour in range(100))
    (tmp_path / "i.csv").write_text("source,published\n" + rows)
    options = LogOptions()
    for since in (str(start + 36_000), f"{start + 36_000}000", "10", "2024-05-01T10:00:00Z"):
        log = options.read(tmp_path / "i.csv", since=since, until="50.5")
        assert (log.start, log.end, len(log)) == (10.0, 50.5, 41)
    for date in ("20240502", "2024"):  # hours, of which 20240502 are 2,309 years
        with pytest.raises(ValueError, match=f"--until is {date}, which may be a date"):
            options.read(tmp_path / "i.csv", until=date)


def test_time_and_memory_depend_on_the_items_not_on_the_days(tmp_path):
    """A million years: a table of days would need gigabytes."""
    path = log_with_a_dead_source(tmp_path / "i.csv", "s1,1e10", "s2,1.2e10")
    options = {"out": tmp_path / "f.csv", "report": tmp_path / "r", "half_life": "7h"}
    Fit(items=path, since="0", until="1.3e10", **options).run()
    assert len(Sources.from_csv(tmp_path / "f.csv")) == 8
