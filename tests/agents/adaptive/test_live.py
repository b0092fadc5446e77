"""A crawl without an environment: what it learns, outages, failures, and saved files."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents import relaxed_bound
from agents.adaptive import LiveCrawl
from crawl_env import Sources

DECAY, UTILITY = 0.15, 3.0


class Web:
    """N sources that publish, followed item by item; time counts in periods."""

    def __init__(self, rate: Any, seed: int = 0, backlog: float = 0.0) -> None:
        self.rate, self.now = np.asarray(rate, dtype=float), 0.0
        self.rng = np.random.default_rng(seed)
        self.items = [np.zeros((0, 2)) for _ in self.rate]  # published, utility at first
        if backlog:
            self.wait(backlog)

    def wait(self, time: float = 1.0) -> None:
        for i, number in enumerate(self.rng.poisson(self.rate * time)):
            born = self.rng.uniform(self.now, self.now + time, number)
            utility = self.rng.exponential(UTILITY, number)
            self.items[i] = np.concatenate([self.items[i], np.stack([born, utility], axis=1)])
        self.now += time

    def fetch(self, source: int) -> tuple[np.ndarray, np.ndarray]:
        born, utility = self.items[source].T
        self.items[source] = np.zeros((0, 2))
        age = self.now - born
        return age, utility * np.exp(-DECAY * age)


def play(crawl: LiveCrawl, web: Web, periods: int, unit: float = 1.0) -> float:
    """Crawl; return the utility per period, which is `unit` units of time to the crawl."""
    collected = 0.0
    for _ in range(periods):
        web.wait()
        for source in crawl.choose():
            age, utility = web.fetch(int(source))
            crawl.report(int(source), age * unit, utility)
            collected += utility.sum()
    return collected / periods


def crawl_of(known: bool, n: int, budget: float, unit: float = 1.0, **options: Any) -> LiveCrawl:
    fleet = Sources(np.ones(n) / unit, UTILITY, DECAY / unit, period=unit)
    if known:
        return LiveCrawl(fleet, budget, use_rates=False, seed=0, **options)
    return LiveCrawl(n, budget, period=unit, seed=0, **options)


@pytest.mark.parametrize("known", [False, True])
def test_it_learns_to_fetch_the_best_sources_in_any_unit_of_time(known: bool) -> None:
    rate = np.geomspace(0.02, 5.0, 40)[np.random.default_rng(1).permutation(40)]
    bound = relaxed_bound(Sources(rate, UTILITY, DECAY), budget=4)
    collected = []
    for unit in (1.0, 3.6e12, 1e-9):  # hours, nanoseconds, millions of years
        crawl, web = crawl_of(known, 40, 4, unit), Web(rate)
        play(crawl, web, 150, unit)
        collected.append(play(crawl, web, 150, unit))
        assert 0.85 * bound < collected[-1] < 1.1 * bound  # above it by chance alone
        well = crawl.rates()[rate > 1.0] * unit / rate[rate > 1.0]
        np.testing.assert_allclose(well, 1.0, rtol=0.45)
    np.testing.assert_allclose(collected, collected[0], rtol=0.05)


def test_the_budget_is_kept_under_mixed_costs_and_exclusions() -> None:
    cost = np.array([1.0, 1.0, 2.0, 1.5, 0.5])
    crawl = LiveCrawl(Sources(np.ones(5), 1.0, 0.1, cost=cost), budget=2.5, seed=0)
    for period in range(20):
        excluded = [period % 5]
        chosen = crawl.choose(exclude=excluded)
        assert 0 < cost[chosen].sum() <= 2.5
        assert not set(chosen) & set(excluded)
        for source in chosen:
            crawl.report(int(source), [], [])


# ----------------------------------------------------------------------- outages and late reports


def test_an_outage_is_no_failure() -> None:
    """As many periods at once, or one by one without reports: all sources stay available."""
    for outage in (lambda c: c.choose(periods=50), lambda c: [c.choose() for _ in range(50)]):
        crawl, web = crawl_of(True, 20, 5), Web(np.full(20, 0.5))
        play(crawl, web, 20)
        outage(crawl)
        web.wait(50.0)
        fetched: set[int] = set()
        for _ in range(10):  # as 4 pay for all, and a source may be drawn twice before the last
            chosen = crawl.choose()
            fetched |= set(chosen.tolist())
            for source in chosen:
                crawl.report(int(source), *web.fetch(int(source)))
        assert len(fetched) == 20


def test_long_fetches_and_unsolicited_reports_are_used() -> None:
    late, prompt = crawl_of(True, 2, 1), crawl_of(True, 2, 1)
    for crawl in (late, prompt):
        for source in (0, 1):
            crawl.report(source, [])  # not chosen; sets the clock
    late.choose()
    late.choose()
    late.choose()
    prompt.choose(periods=3)
    for crawl in (late, prompt):
        for source in (0, 1):
            crawl.report(source, np.full(6, 0.5))
        crawl.choose()
    np.testing.assert_allclose(late.rates(), prompt.rates())
    np.testing.assert_allclose(late.rates(), 2.0, rtol=0.15)  # 6 items in 3 periods


def test_failures_are_left_out_for_longer_and_longer_and_reports_end_that() -> None:
    crawl, fetched = LiveCrawl(3, budget=1, seed=0), []
    for period in range(200):
        for source in crawl.choose():
            if source == 0:
                fetched.append(period)
                crawl.report_failure(0)
            else:
                crawl.report(int(source), [0.5] * 3)
    gaps = np.diff(fetched)
    assert (gaps[:5] >= [2, 4, 8, 16, 32]).all()
    assert len(fetched) <= 8
    crawl.report(0, [])
    reached = [0 in crawl.choose(exclude=[1, 2]) for _ in range(2)]
    assert all(reached)


def test_a_failure_that_is_reported_twice_in_a_period_is_one() -> None:
    for reports in (1, 2, 3):
        crawl, available = LiveCrawl(1, budget=1, seed=0), []
        for period in range(9):
            available.append(crawl.choose().size > 0)
            for _ in range(reports if period in (0, 2) else 0):
                crawl.report_failure(0)
        assert available == [True, False, True, False, False, False, True, True, True]
        crawl.report_failure(0)
        crawl.report(0, [])  # it was tried again
        assert crawl.choose().size == 1


def test_two_reports_in_one_period_are_one() -> None:
    crawls = [crawl_of(False, 2, 1) for _ in range(2)]
    for crawl, parts in zip(crawls, (1, 2), strict=True):
        crawl.report(0, [])
        for _ in range(4):
            crawl.choose()
            for age, utility in zip(
                np.split(np.array([0.1, 0.3, 0.4, 0.9]), parts),
                np.split(np.array([4.0, 3.0, 2.0, 1.0]), parts),
                strict=True,
            ):
                crawl.report(0, age, utility)
    np.testing.assert_allclose(crawls[0].rates(), crawls[1].rates())
    assert crawls[0].choose().tolist() == crawls[1].choose().tolist()


# ------------------------------------------------------------------------------- the first fetch


def test_the_ages_of_the_first_fetch_reveal_the_rate() -> None:
    """Backlogs of 40 newest items, also in another unit, and with an old pinned entry."""
    rate = np.geomspace(0.05, 20.0, 60)
    web = Web(rate, backlog=3000.0)
    for unit, pinned in ((1.0, False), (60.0, False), (1.0, True)):
        crawl = crawl_of(True, 60, 5, unit)
        prior = crawl.rates()
        for i in range(60):
            age = np.sort(web.now - web.items[i][:, 0])[:40]
            age = np.append(age, 5e5) if pinned else age
            crawl.report(i, age * unit)
        crawl.choose()
        error = np.log(crawl.rates() * unit / rate)
        assert np.sqrt(np.mean(error**2)) < 0.35  # of 20 items: 1/√20 = .22
        assert abs(error.mean()) < 0.1
        assert (prior * unit == 50.0).all()


def test_a_first_fetch_without_dates_or_items_reveals_nothing() -> None:
    crawl = crawl_of(True, 2, 2)
    prior = crawl.rates()
    crawl.report(0, np.zeros(30))
    crawl.report(1, [])
    crawl.choose()
    np.testing.assert_array_equal(crawl.rates(), prior)
    crawl.report(0, [0.5])
    crawl.choose()
    assert crawl.rates()[0] < prior[0]
    assert crawl.rates()[1] == prior[1]


@pytest.mark.parametrize("shown", [20, 3, 1])
def test_the_rate_of_a_first_fetch_is_unbiased(shown: int) -> None:
    """Of a feed of rate 1 that shows its newest items; counting the oldest gave 1.11 and 2."""
    n = 6_000
    crawl = LiveCrawl(n, 1, estimator="gamma-poisson", seed=0)
    age = np.random.default_rng(7).exponential(size=(n, shown)).cumsum(axis=1)
    for source in range(n):
        crawl.report(source, age[source])
    crawl.choose()
    count, exposure = (array[0] for array in crawl._state[-2:])
    k = (shown + 1) // 2
    np.testing.assert_allclose(exposure, age[:, k - 1])
    np.testing.assert_array_equal(count, k - 1)
    if shown > 1:
        # Of k = 2 the variance of 1/T is infinite, so it is cut off at 10, of mean .9516 then.
        found, expected = (count / exposure, 1.0) if k > 2 else (
            np.minimum(count / exposure, 10.0), 10 * (1 - 1.1 * np.exp(-0.1)) + np.exp(-0.1)
        )  # fmt: skip
        assert found.mean() == pytest.approx(expected, abs=4 * found.std() / np.sqrt(n))
    np.testing.assert_allclose(crawl.rates(), (0.5 + count) / (0.01 + exposure))


def test_an_old_archive_is_not_taken_for_a_source_without_a_fetch() -> None:
    """All of it, or but one item, is older than 10⁹ periods, which means "never"."""
    for recent in ([], [0.5]):
        crawl = LiveCrawl(3, budget=2, seed=0)
        crawl.choose()
        crawl.report(0, [*recent, *np.full(40, 1e12)])
        crawl.choose()
        assert crawl.rates()[0] < 1e-6
        assert (crawl.rates()[1:] == 50.0).all()
        assert 0 not in crawl.choose()


@pytest.mark.parametrize("first", [False, True])
def test_pages_of_a_fetch_are_one_report(first: bool, tmp_path: Path) -> None:
    """In any order, with a restart between them; of a first fetch, and after a gap of 20."""
    pages, found = [[1.0, 2.0, 3.0, 4.0], [10.0, 12.0, 15.0]], []
    for parts in ([pages[0] + pages[1]], pages, pages[::-1], [[], *pages]):
        crawl = LiveCrawl(2, budget=1, seed=0)
        crawl.choose()
        if not first:
            crawl.report(0, [])
        crawl.choose(periods=20)
        for part in parts:
            crawl.report(0, part)
            crawl.save(tmp_path / "crawl.npz")
            crawl = LiveCrawl.load(tmp_path / "crawl.npz")
        assert crawl._report[0, 4] == (10.0 if first else 47.0)  # Σage
        found.append([crawl.choose().tolist() for _ in range(5)] + [crawl.rates().tolist()])
        crawl.report(0, [0.5])
        crawl.choose()
        found[-1].append(crawl.rates().tolist())
    assert all(each == found[0] for each in found)


def test_fitted_rates_are_the_first_guess() -> None:
    fleet = Sources([0.02, 3.0, 0.0], UTILITY, DECAY, period=2.0)
    np.testing.assert_allclose(LiveCrawl(fleet, 1).rates(), [0.02, 3.0, 25.0])
    np.testing.assert_allclose(LiveCrawl(fleet, 1, use_rates=False).rates(), 25.0)
    assert LiveCrawl(fleet, 1, seed=0, estimator="gamma-poisson").choose()[0] in (1, 2)
    with pytest.raises(ValueError, match=r"'fleet-prior' starts from one .* use_rates=False"):
        LiveCrawl(fleet, 1, estimator="fleet-prior")


# ------------------------------------------------------------------------------- what is reported


def test_ages_that_are_impossible_are_moved_to_possible_ones() -> None:
    """Of an item dated tomorrow, and of one dated 1970: a period since the last, and one more."""
    chosen = []
    for age in ([0.0, 2.0], [-5.0, 470_000.0]):
        crawl = LiveCrawl(2, budget=2, seed=0)
        for _ in range(2):
            crawl.choose()
            crawl.report(0, [], [])
        crawl.choose()
        crawl.choose()
        crawl.report(0, age, [1.0, 1.0])
        chosen.append([crawl.choose().tolist() for _ in range(5)] + [crawl.rates().tolist()])
    assert chosen[0] == chosen[1]


def test_utility_that_is_not_given_is_one() -> None:
    crawls = [LiveCrawl(2, budget=2, seed=0) for _ in range(2)]
    for crawl, utility in zip(crawls, (None, [1.0, 1.0]), strict=True):
        for _ in range(3):
            for source in crawl.choose():
                crawl.report(int(source), [0.2, 0.4], utility)
    np.testing.assert_array_equal(crawls[0].choose(), crawls[1].choose())
    np.testing.assert_array_equal(crawls[0].rates(), crawls[1].rates())


def test_impossible_reports_are_refused() -> None:
    crawl = LiveCrawl(2, budget=2)
    crawl.choose()
    for report, what in (
        ((0, [1.0], [1.0, 2.0]), "source 0: age has 1 entries and utility has 2"),
        ((0, [1.0, 2.0], [1.0, np.nan]), "source 0: utility of item 1 is nan"),
        ((0, [1.0], [-1.0]), "source 0: utility has entries below 0"),
        ((0, 3), "source 0: age is 3; give a list of numbers"),
        ((0, np.array([3], "timedelta64[s]")), "source 0: age is .*; give a list of numbers"),
        (("feed", [1.0]), "source is 'feed'; give its number"),
        ((1.0, [1.0]), r"source is 1\.0; give its number"),
        ((5, [1.0], [1.0]), "source is 5; the sources are 0 to 1"),
        ((-1, [1.0], [1.0]), "source is -1; the sources are 0 to 1"),
    ):
        with pytest.raises(ValueError, match=what):
            crawl.report(*report)
    with pytest.raises(ValueError, match="periods is 0; it must be a whole number"):
        crawl.choose(periods=0)
    refused: list[Any] = [3, None, np.array(3)]
    for exclude in refused:
        with pytest.raises(ValueError, match=r"exclude is .*; give a list of sources"):
            crawl.choose(exclude=exclude)
    assert crawl.choose(exclude={0}).tolist() == [1]


def test_bad_arguments_are_refused() -> None:
    limited = Sources(np.ones(3), 1.0, 0.1, crawl_delay=3.0, failure_rate=0.1)
    hosted = Sources([1, 1], 1.0, 0.1, hosts=["a", "a"])
    for arguments, what in (
        ({"sources": limited}, "has crawl_delay, failure_rate, which LiveCrawl"),
        ({"sources": hosted}, "the fleet has hosts, which LiveCrawl"),
        ({"sources": Sources([1, 1], 1, 0.1, cost=[1, 1e-320])}, "source 1: cost is 1e-320; give"),
        ({"sources": 3.5}, r"sources is 3\.5; give the number of sources, or a fleet"),
        ({"sources": 0}, "sources is 0; give a number of at least 1"),
        ({"budget": 0.5}, r"budget is 0\.5, which is below the cost of every source"),
        ({"budget": "two"}, "budget is 'two'; it must be positive"),
        ({"period": -1}, "period is -1; it must be positive"),
        ({"estimator": 3}, "estimator is 3; give the name of an estimator"),
        ({"estimator": "forgeting"}, "unknown estimator 'forgeting'; did you mean 'forgetting'"),
    ):
        with pytest.raises(ValueError, match=what):
            LiveCrawl(**{"sources": 3, "budget": 1, **arguments})  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------ saved files


@pytest.mark.parametrize("known", [False, True])
def test_a_restart_changes_nothing(known: bool, tmp_path: Path) -> None:
    def begin() -> LiveCrawl:
        fleet = Sources(np.ones(6), UTILITY, DECAY, cost=[1, 1, 2, 1, 1, 3])
        estimator = "forgetting" if known else "fleet-prior"
        return LiveCrawl(fleet if known else 6, budget=3, estimator=estimator, seed=4)

    one, other = begin(), begin()
    webs = [Web([0.1, 2, 1, 0.5, 3, 0.2], 7) for _ in range(2)]
    for crawl, web in zip((one, other), webs, strict=True):
        play(crawl, web, 20)
        crawl.choose()  # in the middle of a period
        crawl.report_failure(2)
    other.save(tmp_path / "crawl.npz")
    again = LiveCrawl.load(tmp_path / "crawl.npz")
    assert play(one, webs[0], 30) == play(again, webs[1], 30)
    np.testing.assert_array_equal(one.rates(), again.rates())
    assert [path.name for path in tmp_path.iterdir()] == ["crawl.npz"]
    with pytest.raises(FileNotFoundError):
        other.save(tmp_path / "none" / "crawl.npz")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("live") / "crawl.npz"
    crawl, web = LiveCrawl(5, budget=2, seed=0), Web([0.1, 2, 1, 0.5, 3])
    for _ in range(10):
        web.wait()
        for source in crawl.choose(exclude=[4]):
            crawl.report(int(source), *web.fetch(int(source)))
    crawl.report(4, web.fetch(4)[0])  # a first fetch, to which more pages may be added
    crawl.save(path)
    return path


def test_other_files_are_refused_and_run_no_code(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LiveCrawl.load(tmp_path / "none.npz")
    path = tmp_path / "other.npz"
    empty = io.BytesIO()
    np.savez(empty, settings=np.array("{}"))
    for content in (b"", b"other", pickle.dumps({"a": 1}), empty.getvalue()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"other.npz is not a file written by LiveCrawl.save"):
            LiveCrawl.load(path)


def changed_file(saved: Path, change: Any) -> bytes:
    """Return a saved file whose arrays were changed, with right checksums."""
    with np.load(saved) as file:
        arrays = dict(file)
    change(arrays)
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def test_every_array_is_checked(saved: Path, tmp_path: Path) -> None:
    """Another shape, type, sign or NaN in any array is refused, with the reason."""
    path = tmp_path / "crawl.npz"
    with np.load(saved) as file:
        arrays = dict(file)
    signed = {"state_7", "state_11", "state_12", "state_15"}  # logarithms, and sums of these
    for name, array in arrays.items():
        if name == "settings":
            continue
        with np.errstate(over="ignore"):
            half = array.astype(np.float16)
        number = np.array(array, dtype=float)
        number.flat[0] = -5e3
        poisoned = np.array(array)
        if array.dtype.kind == "f":
            poisoned.flat[-1] = np.nan
        variants = [array[..., :-1], np.stack([array, array]), half,
                    array.astype(object), array.astype("U8"), None]  # fmt: skip
        if name not in signed:
            variants.append(number.astype(array.dtype))
        if array.dtype.kind == "f" and name != "state_1":  # the multiplier, which is not used
            variants.append(poisoned)
        for other in variants:

            def change(changed: dict[str, Any], name: str = name, other: Any = other) -> None:
                changed.pop(name)
                if other is not None:
                    changed[name] = other

            path.write_bytes(changed_file(saved, change))
            with pytest.raises(ValueError, match=r"crawl\.npz is not a file written by"):
                pytest.fail(f"{name} as {other} gave {LiveCrawl.load(path)}")
    path.write_bytes(changed_file(saved, lambda a: a.update(more=np.zeros(3))))
    with pytest.raises(ValueError, match="it has further arrays: more"):
        LiveCrawl.load(path)


def test_models_that_cannot_be_planned_with_are_refused(saved: Path, tmp_path: Path) -> None:
    """Zeros and numbers near zero, by which would be divided."""
    path = tmp_path / "crawl.npz"
    for position, name in ((4, "utility"), (5, "decay")):
        for value in (1e-320, 1e300) if name == "utility" else (0.0, 1e-320, 1e300):

            def change(arrays: dict[str, Any], i: int = position, value: float = value) -> None:
                arrays[f"state_{i}"][0, 3] = value

            path.write_bytes(changed_file(saved, change))
            with pytest.raises(ValueError, match=f"a model whose {name} is .*, of source 3; it"):
                LiveCrawl.load(path)
    crawl_of(True, 3, 1).save(tmp_path / "known.npz")
    for name in ("cost", "mean_utility"):

        def small(arrays: dict[str, Any], name: str = name) -> None:
            arrays[name][1] = 1e-320

        path.write_bytes(changed_file(tmp_path / "known.npz", small))
        with pytest.raises(ValueError, match=f"source 1: {name} is 1e-320; give at least"):
            LiveCrawl.load(path)


def test_no_memory_is_taken_for_what_a_header_claims(saved: Path, tmp_path: Path) -> None:
    """A header of 7 PiB, and a compressed member that would expand."""
    path = tmp_path / "crawl.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    )
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        out = io.BytesIO()
        with zipfile.ZipFile(saved) as old, zipfile.ZipFile(out, "w") as new:
            for info in old.infolist():
                content = old.read(info)
                if info.filename in ("arrival_rate.npy", "cost.npy"):
                    content = header.getvalue() + bytes(40)
                new.writestr(info.filename, content, compress_type=compression)
        path.write_bytes(out.getvalue())
        with pytest.raises(ValueError, match=r"arrival_rate has 40 bytes|is compressed"):
            LiveCrawl.load(path)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_settings_of_a_saved_file_are_checked(saved: Path, tmp_path: Path, data: Any) -> None:
    """Any JSON in place of a setting: refused, or a crawl that works."""
    path = tmp_path / "crawl.npz"
    json_value = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=4,
    )

    def change(arrays: dict[str, Any]) -> None:
        told = json.loads(arrays["settings"].tobytes())
        told[data.draw(st.sampled_from(sorted(told)))] = data.draw(json_value)
        arrays["settings"] = np.frombuffer(json.dumps(told).encode(), dtype=np.uint8)

    path.write_bytes(changed_file(saved, change))
    try:
        crawl = LiveCrawl.load(path)
    except ValueError as error:
        assert "is not a file written by LiveCrawl.save" in str(error)  # noqa: PT017
    else:
        assert np.isfinite(crawl.rates()).all()
        assert len(crawl.choose()) >= 1


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_are_refused_or_read_as_they_were(
    saved: Path, tmp_path: Path, data: Any
) -> None:
    """Bytes changed, cut or inserted anywhere."""
    path, content = tmp_path / "crawl.npz", bytearray(saved.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["change", "cut", "insert", "end"]))
        if kind == "change":
            content[at] ^= data.draw(st.integers(1, 255))
        elif kind == "cut":
            del content[at : at + data.draw(st.integers(1, 200))]
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=50))
        elif at:
            del content[at:]
        if not content:
            break
    path.write_bytes(content)
    try:
        crawl = LiveCrawl.load(path)
    except ValueError as error:
        assert "is not a file written by LiveCrawl.save" in str(error)  # noqa: PT017
    else:
        reference = LiveCrawl.load(saved)
        np.testing.assert_array_equal(crawl.rates(), reference.rates())
        np.testing.assert_array_equal(crawl.choose(), reference.choose())
