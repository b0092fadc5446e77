"""A crawl without an environment: against the environment, across restarts, and what it refuses."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents import relaxed_bound
from agents.adaptive import LiveCrawl
from crawl_env import Sources

DECAY, WORTH = 0.15, 3.0


class Web:
    """N sources that publish, followed item by item."""

    def __init__(self, rate: Any, seed: int = 0) -> None:
        self.rate, self.rng, self.now = (
            np.asarray(rate, dtype=float),
            np.random.default_rng(seed),
            0,
        )
        self.items = [np.zeros((0, 2)) for _ in self.rate]  # published, worth at first

    def wait(self) -> None:
        for i, number in enumerate(self.rng.poisson(self.rate)):
            born = self.rng.uniform(self.now, self.now + 1, number)
            worth = self.rng.exponential(WORTH, number)
            self.items[i] = np.concatenate([self.items[i], np.stack([born, worth], axis=1)])
        self.now += 1

    def fetch(self, source: int) -> tuple[np.ndarray, np.ndarray]:
        born, worth = self.items[source].T
        self.items[source] = np.zeros((0, 2))
        age = self.now - born
        return age, worth * np.exp(-DECAY * age)


def play(crawl: LiveCrawl, web: Web, periods: int) -> float:
    brought = 0.0
    for _ in range(periods):
        web.wait()
        for source in crawl.choose():
            age, worth = web.fetch(int(source))
            crawl.report(int(source), age, worth)
            brought += worth.sum()
    return brought / periods


@pytest.mark.parametrize("known", [False, True])
def test_learns_to_fetch_what_is_worth_it(known: bool) -> None:
    rate = np.geomspace(0.02, 5.0, 40)[np.random.default_rng(1).permutation(40)]
    fleet = Sources(np.ones(40), WORTH, DECAY)
    crawl = LiveCrawl(fleet if known else 40, budget=4, seed=0)
    web = Web(rate)
    play(crawl, web, 150)
    found = play(crawl, web, 150)
    bound = relaxed_bound(Sources(rate, WORTH, DECAY), budget=4)
    assert 0.85 * bound < found < 1.1 * bound  # above it by chance alone
    well = crawl.rates()[rate > 1.0] / rate[rate > 1.0]
    np.testing.assert_allclose(well, 1.0, rtol=0.45)


@pytest.mark.parametrize("known", [False, True])
def test_goes_on_after_a_restart_as_if_there_had_been_none(known: bool, tmp_path: Path) -> None:
    def begin() -> LiveCrawl:
        fleet = Sources(np.ones(6), WORTH, DECAY, cost=[1, 1, 2, 1, 1, 3])
        return LiveCrawl(fleet if known else 6, budget=3, estimator="fleet-prior", seed=4)

    one, other = begin(), begin()
    webs = [Web([0.1, 2, 1, 0.5, 3, 0.2], 7) for _ in range(2)]
    for crawl, web in zip((one, other), webs, strict=True):
        play(crawl, web, 20)
    other.choose()  # in the middle of a period
    other.save(tmp_path / "crawl.npz")
    again = LiveCrawl.load(tmp_path / "crawl.npz")
    one.choose()
    assert np.flatnonzero(one._chosen).tolist() == np.flatnonzero(again._chosen).tolist()
    assert play(one, webs[0], 30) == play(again, webs[1], 30)
    np.testing.assert_array_equal(one.rates(), again.rates())
    assert [path.name for path in tmp_path.iterdir()] == ["crawl.npz"]


def test_the_budget_is_kept_under_mixed_costs() -> None:
    cost = np.array([1.0, 1.0, 2.0, 1.5, 0.5])
    crawl = LiveCrawl(Sources(np.ones(5), 1.0, 0.1, cost=cost), budget=2.5, seed=0)
    for _ in range(20):
        chosen = crawl.choose()
        assert 0 < cost[chosen].sum() <= 2.5
        for source in chosen:
            crawl.report(int(source), [], [])


def test_what_is_not_reported_has_failed_and_first_fetches_tell_nothing() -> None:
    crawl = LiveCrawl(2, budget=2, seed=0)
    prior = crawl.rates()
    crawl.choose()
    crawl.report(0, np.linspace(1, 500, 900), np.ones(900))  # a backlog
    crawl.choose()
    np.testing.assert_array_equal(crawl.rates(), prior)
    crawl.report(0, [0.5], [1.0])
    crawl.choose()
    assert crawl.rates()[0] < prior[0]
    assert crawl.rates()[1] == prior[1]


@pytest.mark.parametrize(
    ("report", "what"),
    [
        ((0, [1.0], [1.0, 2.0]), "source 0: there are 1 ages and 2 worths of items"),
        ((0, [1.0, 2.0], [1.0, np.nan]), "source 0: worth of item 1 is nan"),
        ((0, [1.0], [-1.0]), "source 0: worth has entries below 0"),
        ((0, 3), "source 0: age is 3; give a list of numbers"),
        ((0, np.array([3], "timedelta64[s]")), "source 0: age is .*; give a list of numbers"),
        (("feed", [1.0]), "source is 'feed'; give its number"),
        ((1.0, [1.0]), "source is 1.0; give its number"),
        ((5, [1.0], [1.0]), "source 5 was not chosen in this period"),
        ((-1, [1.0], [1.0]), "source -1 was not chosen in this period"),
    ],
)
def test_reports_that_cannot_be_are_refused(report: Any, what: str) -> None:
    crawl = LiveCrawl(2, budget=2)
    crawl.choose()
    with pytest.raises(ValueError, match=what):
        crawl.report(*report)
    crawl.report(0, [1.0], [1.0])
    with pytest.raises(ValueError, match="or was reported already"):
        crawl.report(0, [1.0], [1.0])


def test_other_files_are_refused_and_run_no_code(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LiveCrawl.load(tmp_path / "none.npz")
    path = tmp_path / "other.npz"
    for content in (b"", b"other", pickle.dumps({"a": 1})):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"other.npz is no file that LiveCrawl.save wrote"):
            LiveCrawl.load(path)
    with path.open("wb") as file:
        np.savez(file, settings=np.array("{}"))
    with pytest.raises(ValueError, match=r"other.npz is no file that LiveCrawl.save wrote"):
        LiveCrawl.load(path)


def test_ages_that_cannot_be_are_those_that_can() -> None:
    """Of an item dated tomorrow, and of one dated 1970: a period since the last, and one more."""
    reports = []
    for age in ([0.0, 2.0], [-5.0, 470_000.0]):
        crawl = LiveCrawl(2, budget=2, seed=0)
        for _ in range(2):
            crawl.choose()
            crawl.report(0, [], [])
        crawl.choose()
        crawl.report(0, age, [1.0, 1.0])
        reports.append(crawl._report.copy())
    np.testing.assert_array_equal(*reports)


def test_what_fails_again_and_again_is_left_alone_for_longer_and_longer() -> None:
    crawl, fetched = LiveCrawl(3, budget=1, seed=0), []
    for period in range(200):
        for source in crawl.choose():
            if source == 0:
                fetched.append(period)
            else:
                crawl.report(int(source), [0.5] * 3)
    gaps = np.diff(fetched)
    assert (gaps[:5] >= [2, 4, 8, 16, 32]).all()
    assert len(fetched) <= 8


def test_worth_that_is_not_given_is_one() -> None:
    crawls = [LiveCrawl(2, budget=2, seed=0) for _ in range(2)]
    for crawl, worth in zip(crawls, (None, [1.0, 1.0]), strict=True):
        for _ in range(3):
            for source in crawl.choose():
                crawl.report(int(source), [0.2, 0.4], worth)
    np.testing.assert_array_equal(crawls[0].choose(), crawls[1].choose())
    np.testing.assert_array_equal(crawls[0].rates(), crawls[1].rates())


def test_fleets_with_limits_are_refused() -> None:
    fleet = Sources(np.ones(3), 1.0, 0.1, crawl_delay=3.0, failure_rate=0.1)
    with pytest.raises(ValueError, match="has crawl_delay, failure_rate, which LiveCrawl"):
        LiveCrawl(fleet, budget=1)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sources is 3\.5; give their number, or a fleet"):
        LiveCrawl(3.5, budget=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"budget is 0\.5, which pays for no source"):
        LiveCrawl(3, budget=0.5)
    with pytest.raises(ValueError, match="estimator is 3; give the name of one"):
        LiveCrawl(3, budget=1, estimator=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sources is 0; it must be at least 1"):
        LiveCrawl(0, budget=1)
    with pytest.raises(
        ValueError, match="unknown estimator 'forgeting'; did you mean 'forgetting'"
    ):
        LiveCrawl(3, budget=1, estimator="forgeting")
