"""A back-test plays the scheduler and the rules in use on the same items."""

import csv
import math
from types import SimpleNamespace

import numpy as np
import pytest

from agents.evaluation.statistics import Estimate
from crawl_env import ItemLog, PingLog
from ephemeral_crawl import __main__ as cli
from ephemeral_crawl.backtest import command as backtest
from ephemeral_crawl.backtest import play, rules, summary
from ephemeral_crawl.backtest.play import Feeds, played
from ephemeral_crawl.core.results import read_csv
from ephemeral_crawl.live import Scheduler

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


def a_log(feeds=12, days=6.0, seed=0):
    rng = np.random.default_rng(seed)
    rate = np.exp(rng.normal(math.log(0.2), 1.2, feeds))
    number = rng.poisson(rate * 24 * days)
    source = np.repeat(np.arange(feeds), number)
    utility = rng.exponential(np.exp(rng.normal(0, 0.8, feeds))[source])
    published = rng.uniform(0, 24 * days, len(source))
    order = np.argsort(published)
    names = [f"feed {i}" for i in range(feeds)]
    return ItemLog(names, source[order], published[order], utility[order], start=0, end=24 * days)


def test_the_scheduler_may_fetch_a_feed_as_often_as_the_rules_do():
    """Also within less than a minute, which is else the least time between two fetches."""
    log = ItemLog(["a"], [0] * 200, np.arange(200) / 360, [1.0] * 200)
    feeds = Feeds(log, start=0.1, half_life=HOUR)  # for half an hour
    assert played(feeds, "scheduler", 600.0).fetches.sum() > 60


ENTRIES = [40 * DAY - 2 * HOUR * k for k in range(30)][::-1]  # every two hours until day 40


@pytest.mark.parametrize(
    ("name", "dates", "now", "expected"),
    [
        ("miniflux", ENTRIES, 40 * DAY, 7 * DAY / 30),
        ("miniflux", ENTRIES, 46.5 * DAY, 7 * DAY / 7),  # from day 39.5 on, without the first
        ("miniflux", ENTRIES, 60 * DAY, DAY),
        ("miniflux", [10 * DAY] * 5000, 10 * DAY, 5 * MINUTE),
        ("commafeed", ENTRIES, 40 * DAY, HOUR),
        ("commafeed", [DAY, DAY + 20 * MINUTE], DAY + HOUR, 10 * MINUTE),
        ("commafeed", [DAY, DAY + MINUTE], DAY + HOUR, 5 * MINUTE),
        ("commafeed", ENTRIES, 47 * DAY, HOUR),
        ("commafeed", ENTRIES, 54 * DAY, 2 * HOUR),
        ("commafeed", ENTRIES, 70 * DAY, 4 * HOUR),
        ("commafeed", [], DAY, 4 * HOUR),
        ("autottl", ENTRIES, 40 * DAY, 29 * 2 * HOUR / 30),
        ("autottl", [DAY, DAY + 30 * MINUTE], 2 * DAY, HOUR),
        ("autottl", ENTRIES, 80 * DAY, DAY),
        ("round robin", ENTRIES, 40 * DAY, DAY),
    ],
)
def test_rules_that_read_dates(name, dates, now, expected):
    assert rules.RULES[name]().after(now, list(dates)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("miniflux", None, [24, 24, math.inf, math.inf]),
        ("commafeed", 503, [1 / 12, 1 / 12, 1, 2, 3, 4, 4]),
        ("autottl", 404, [24] * 5),
        ("aimd", None, [1] * 4),
        ("nutch", 503, [24, 24, 36, 54, 81]),
        ("nutch", 404, [36, 54, 81]),
        ("round robin", 410, [24] * 5),
    ],
)
def test_rules_after_errors(name, status, expected):
    rule = rules.RULES[name]()
    hours = [rule.after_error(day * rules.DAY, status) / rules.HOUR for day in range(len(expected))]
    assert hours == pytest.approx(expected)
    rule.after(9 * rules.DAY, [])
    if name != "nutch" or status == 503:
        assert rule.after_error(9 * rules.DAY, status) < math.inf  # it begins anew


def test_rules_that_ask_only_for_news():
    aimd, nutch = rules.Aimd(), rules.Nutch()
    assert [aimd.after(0, found) / HOUR for found in ([1.0], [], [], [])] == [1, 1.5, 2, 2.5]
    assert aimd.after(0, [3.0]) == 1.25 * HOUR
    for _ in range(9):
        aimd.after(0, [4.0])
    assert aimd.after(0, [5.0]) == HOUR
    assert [nutch.after(0, found) / DAY for found in ([1.0], [])] == pytest.approx([0.8, 1.12])
    for _ in range(40):
        nutch.after(0, [])
    assert nutch.after(0, []) == 30 * DAY


def test_a_feed_lists_its_newest_items_and_is_paid_by_age():
    log = ItemLog(["a"], [0, 0, 0, 0], [1.0, 11.0, 12.0, 13.0], [8.0, 1.0, 2.0, 4.0], 0, 100)
    feeds = Feeds(log, start=0.1, half_life=HOUR, listed=2)
    assert feeds.total == 7.0
    new, worth = feeds.fetch(0, 10 * HOUR)
    assert (new / HOUR).tolist() == [1.0]
    assert worth.tolist() == [8.0]
    assert feeds.collected.sum() == 0.0  # backlog
    assert (feeds.fetch(0, 14 * HOUR)[0] / HOUR).tolist() == [12.0, 13.0]  # 11 is lost
    assert feeds.collected.sum() == pytest.approx(2 / 4 + 4 / 2)
    assert not len(feeds.fetch(0, 15 * HOUR)[0])


def test_two_feeds_by_hand():
    """Both publish at half past every even hour, and are fetched in turn, on the hour: the first
    1.5 hours later, the second half an hour later. The log's unit is minutes."""
    times = np.repeat(60.0 * (np.arange(0, 100, 2) + 0.5), 2)
    worths = np.tile([3.0, 1.0], 50)
    log = ItemLog(["a", "b"], np.tile([0, 1], 50), times, worths, 0.0, 6000.0, unit="minute")
    feeds = Feeds(log, start=0.1, half_life=1.5 * HOUR, block=45 * HOUR)  # from hour 10 on
    found = played(feeds, "round robin", 1.0)
    assert found.fetches.tolist() == [45.0, 45.0]
    # The first is fetched at hours 12, 14, … 98 (its last item never), the second at 11, 13, … 99.
    each = 2 ** (-1 / 3)
    by_hand = [22 * 3 / 2 + 22 * each, 22 * 3 / 2 + 23 * each]  # before hour 55, and from then on
    assert found.collected.tolist() == pytest.approx(by_hand)
    assert feeds.total == 45 * 4.0
    assert found.fetched_worth == 44 * 3.0 + 45 * 1.0
    assert found.delay == pytest.approx((44 * 3 * 1.5 + 45 * 0.5) / found.fetched_worth * HOUR)


def test_fewer_fetches_are_enough_only_as_far_as_all_more_are():
    gains = {4.0: 0.5, 3.0: 0.1, 2.0: -0.1, 1.0: 0.05}
    runs = {m: {play.SCHEDULER: gain, "miniflux": 0.0} for m, gain in gains.items()}
    events = SimpleNamespace(
        per_hour=4.0, present="miniflux", gain=lambda run, _: Estimate(run, run - 0.2, run + 0.2)
    )
    results = SimpleNamespace(runs=runs)
    assert summary.enough(events, results, sure=False) == 3.0
    assert summary.enough(events, results, sure=True) is None


def test_what_feeds_publish_is_what_they_publish_while_fetches_are_made():
    log = ItemLog(["a"], [0, 0, 0, 0], [1.0, 11.0, 12.0, 13.0], [8.0, 1.0, 2.0, 4.0], 0, 100)
    feeds, run = Feeds(log, start=0.1, half_life=HOUR), SimpleNamespace(fetches=np.array([9.0]))
    events = SimpleNamespace(feeds=feeds, log=log, per_hour=1.0, present="miniflux")
    runs = {1.0: {play.SCHEDULER: run, "miniflux": run}}
    (row,) = summary.feeds_of(events, SimpleNamespace(runs=runs))
    days = 90 / 24
    assert [row["items_per_day"], row["worth_per_day"]] == pytest.approx([3 / days, 7 / days])
    assert row["present_per_day"] == pytest.approx(9 / days)


def test_a_rule_with_its_own_intervals_spends_what_it_wants():
    times = np.arange(0.0, 100.0, 0.25)
    log = ItemLog(["busy", "silent"], np.zeros(400, int), times, np.ones(400), 0.0, 100.0)
    feeds = Feeds(log, start=0.0, half_life=HOUR)
    found = played(feeds, play.AS_IT_IS + "aimd", per_hour=7.0)
    # Every hour; and after 1, 1.5, 2 … hours up to a day: Σ from 1 by .5 is 97.5 after 18 gaps.
    assert found.fetches.tolist() == [100.0, 1 + 18.0]
    assert found.collected.sum() == pytest.approx(1 + 99 * (2**-0.75 + 2**-0.5 + 2**-0.25 + 1))


def test_the_scheduler_hears_pings_and_is_told_nothing_of_the_future(monkeypatch):
    log = a_log(days=14)
    pings = PingLog(log.names, log.source, log.published + 0.01, 0.0, 24 * 14 + 1.0)
    feeds = Feeds(log, start=0.3, half_life=3 * HOUR, pings=pings.covering(0.0, 24 * 14))
    without = played(feeds, play.WITHOUT, 0.5)
    fetch, signal, report = feeds.fetch, Scheduler.signal_many, Scheduler.report
    clock, told = [0.0], [0.0]

    def fetched(i, now):
        clock.append(1e9 + now)
        assert told[-1] <= clock[-1]
        return fetch(i, now)

    def signals(self, given):
        heard = list(given)
        told.extend(ping["at"] for ping in heard)
        signal(self, heard)

    def reports(self, lease, items):
        assert all(time <= clock[-1] for time, _ in items)
        return report(self, lease, items)

    monkeypatch.setattr(feeds, "fetch", fetched)
    monkeypatch.setattr(Scheduler, "signal_many", signals)
    monkeypatch.setattr(Scheduler, "report", reports)
    heard = played(feeds, play.SCHEDULER, 0.5)
    times, last = HOUR * (log.published + 0.01), feeds.moments(4 * 0.5)[-1]
    expected = ((times >= feeds.start) & (times <= last)).sum()
    assert len(told) == 1 + expected
    assert heard.collected.sum() > 1.1 * without.collected.sum()
    assert 0.95 < heard.fetches.sum() / (0.5 * (feeds.end - feeds.start) / HOUR) < 1.01


def test_the_scheduler_is_between_the_rules_and_the_known_rates():
    feeds = Feeds(a_log(days=14), start=0.3, half_life=3 * HOUR, listed=20)
    found = {name: played(feeds, name, 1.0) for name in (play.SCHEDULER, play.KNOWN, *rules.RULES)}
    fetches = (feeds.end - feeds.start) / HOUR
    assert all(abs(run.fetches.sum() - fetches) <= 2 for run in found.values())
    worth = {name: run.collected.sum() for name, run in found.items()}
    assert max(worth[name] for name in rules.RULES) < worth[play.SCHEDULER] < worth[play.KNOWN]
    assert worth[play.KNOWN] < feeds.total
    again = played(feeds, play.SCHEDULER, 1.0)
    assert (again.collected == found[play.SCHEDULER].collected).all()


@pytest.mark.parametrize("unit", [2.0**20, 2.0**-20])
def test_the_unit_of_worth_does_not_matter_to_the_scheduler(unit):
    log = a_log(days=4, seed=1)
    pings = PingLog(log.names, log.source, log.published + 0.01, 0.0, 24 * 4 + 1.0)
    found = []
    for worth in (log.utility, log.utility * unit):
        same = ItemLog(log.names, log.source, log.published, worth, start=log.start, end=log.end)
        feeds = Feeds(same, start=0.1, half_life=3 * HOUR, listed=20, pings=pings)
        found.append(played(feeds, play.SCHEDULER, 1.0))
    assert (found[0].fetches == found[1].fetches).all()
    assert (found[0].collected * unit == found[1].collected).all()


def test_the_scheduler_does_not_begin_with_more_fetches_than_others():
    feeds = Feeds(a_log(days=3), start=0.3, half_life=3 * HOUR, listed=20)
    found = {name: played(feeds, name, 8.0) for name in (play.SCHEDULER, "miniflux")}
    total = {name: run.fetches.sum() for name, run in found.items()}
    assert total["miniflux"] - 8 <= total[play.SCHEDULER] <= total["miniflux"]


@pytest.fixture
def log_file(tmp_path):
    log = a_log()
    path = tmp_path / "log.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "published", "utility"])
        rows = zip(log.source, log.published, log.utility, strict=True)
        writer.writerows([f"<b>{i}</b>", repr(float(t)), repr(float(w))] for i, t, w in rows)
    return path


def run(path, *words):
    cli.main(["backtest", "--items", str(path), "--budget", "1/h", "--jobs", "1", *words])


def test_a_quick_run_plays_a_sample_of_many_feeds(log_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(backtest, "MOST", 4)
    run(log_file, "--engine", "sequential", "--quick")
    note = "A sample: 4 of 12 feeds, in even steps of their worth, with the budget scaled to it"
    assert f"{note} (1 to 0.3333 fetches an hour)." in capsys.readouterr().out
    page = (tmp_path / "results/backtest/report.html").read_text(encoding="utf-8")
    assert note in page
    assert f"<h1>Back-test on {log_file.name}: a sample, 4 of 12 feeds</h1>" in page
    assert len(read_csv(tmp_path / "results/backtest/feeds.csv")) == 4


def test_the_command_resumes_and_reports(log_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    real, done, compiled = play.work, [], []
    monkeypatch.setattr(backtest, "compile_scheduler", lambda *_: compiled.append(len(done)))

    def stopped(log, pings, job):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(job)
        return real(log, pings, job)

    monkeypatch.setattr(play, "work", stopped)
    with pytest.raises(SystemExit):
        run(log_file, "--engine", "sequential", "--quick")
    assert "3 of 12 parts are finished" in capsys.readouterr().out
    monkeypatch.setattr(play, "work", lambda *given: done.append(given) or real(*given))
    run(log_file, "--engine", "sequential", "--quick")
    assert len(done) == 12  # three of them before
    assert compiled == [0, 3]  # once, and not by each process
    said = " ".join(capsys.readouterr().out.split())
    assert "With 1 fetch an hour the scheduler collects" in said
    assert "of all worth, and the rule of miniflux" in said
    assert "scheduler's gain delay, hours feeds fetched" in said
    assert "It counts the entries of 7 d, but the log begins only 14.3 h before the first" in said
    page = (tmp_path / "results/backtest/report.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;0" in page
    assert "<b>0</b>" not in page
    rows = read_csv(tmp_path / "results/backtest/feeds.csv")
    assert len(rows) == 12
    assert sum(float(row["scheduler_per_day"]) for row in rows) == pytest.approx(24, abs=0.3)
    with pytest.raises(SystemExit, match=r"another question .*--half-life 3h"):
        run(log_file, "--half-life", "6h")


def test_what_takes_long_says_so_before_it_begins(log_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(backtest, "_MANY_FETCHES", 100)

    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(play, "work", stopped)
    for words, is_told in ((), True), (("--quick",), False):
        with pytest.raises(SystemExit):
            run(log_file, "--engine", "sequential", *words)
        said = capsys.readouterr().out
        assert "fetches at --budget 1/h" in said
        assert ("--quick plays a sample" in said) == is_told


@pytest.mark.parametrize(
    ("worth", "reason"),
    [(0, "no item of any utility"), (2e12, "up to 2e"), (1e-100, "up to 1e-100, which the")],
)
def test_a_log_that_the_scheduler_cannot_play_is_refused_first(tmp_path, worth, reason, capsys):
    log = tmp_path / "log.csv"
    log.write_text(f"source,published,utility\na,1,{worth}\na,5,0\na,90,{worth}\n")
    with pytest.raises(SystemExit, match=reason):
        cli.main(["backtest", "--items", str(log), "--budget", "3/h", "--half-life", "6h"])
    assert "parts" not in capsys.readouterr().out
