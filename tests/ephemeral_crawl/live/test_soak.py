"""A few seconds of the soak, its checks, and what it has found."""

import contextlib
import json
import os
import random
import subprocess
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import pytest

from ephemeral_crawl.live import Scheduler
from tests.ephemeral_crawl.live import soak, soak_checks
from tests.ephemeral_crawl.live.soak_checks import check_budget
from tests.ephemeral_crawl.live.soak_shards import ShardSoak
from tests.ephemeral_crawl.live.world import DAY, HOUR, Clock
from tests.processes import forked


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_faults_of_all_kinds_break_no_promise():
    asked = soak.Options(0.06, "sqlite", speed=120.0, every=0.08, seed=1, shards=None)
    run = forked(partial(soak.main, asked), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    printed, said = run.communicate()
    assert run.returncode == 0, printed + said
    found = json.loads(printed)
    assert found["violations"] == []
    assert found["fetches"] > 0
    assert found["least balance"] < 0.5 * soak.BURST  # or it would not tell whether it is kept
    assert all(found[fault] for fault in soak.FAULTS)


def test_a_budget_that_is_exceeded_is_noticed():
    def least(*leases):
        return check_budget([soak_checks.Lease(*lease) for lease in leases], 0.1, 5.0)

    # The bucket is full at first, and holds 5; a lease may have been given at any time in a call.
    assert least((0, 1, 3), (10, 11, 3)) == pytest.approx(0.1)
    assert least((0, 1, 5), (10, 60, 5)) == pytest.approx(0.1)
    assert least((0, 30, 1), (0, 30, 1), (0, 30, 4), (25, 30, 2)) == pytest.approx(0.0)
    with pytest.raises(AssertionError, match=r"exceeded by 3\.9"):
        least((0, 1, 5), (10, 11, 5))
    with pytest.raises(AssertionError, match=r"exceeded by 0\.4"):
        least((0, 1, 5), (10, 46, 5))
    with pytest.raises(AssertionError, match="exceeded by 1"):  # saved up for more than it holds
        least((1000, 1000, 6))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["fetch 1000 1 2 999", "fetch 1899 1 2 1898"], "source 1 was fetched after 899"),
        (["fetch 1000 1 2 999", "fetch 1599 3 2 1598"], "host 2 was fetched after 599"),
        (["429 1000 3 5000", "fetch 4999 1 3 1001"], "host 3 was fetched 1.0 s too early"),
        (["again 1000 1 5000", "fetch 4990 1 3 1001"], "source 1 was fetched 10.0 s too early"),
        (["stopped 1000 1", "fetch 1001 1 3 1000.5"], "source 1 was fetched inf s too early"),
        (["stopped 1000 1", "running 2000 1", "fetch 1999 1 3 1001"], "1.0 s too early"),
        (["fetch 1000 1 2 999", "fetch 1900 1 2 1898", "fetch 2500 3 2 2499"], None),
        (["fetch 1000 1 3 999", "fetch 1001 2 3 1000"], None),  # a host without an interval
        (["429 1000 3 5000", "fetch 1001 1 3 999.5", "fetch 5000 2 3 4000"], None),
        (["stopped 1000 1", "running 2000 1", "fetch 2000 1 3 1999.5"], None),
    ],
)
def test_fetches_that_come_too_early_are_noticed(lines, said):
    notes = soak_checks.Notes.of(lines)
    noticed = pytest.raises(AssertionError, match=said) if said else contextlib.nullcontext()
    with noticed:
        soak_checks.check_politeness(notes, 900.0, {2: 600.0})


def _no_prices_apart():
    return ShardSoak._prices_apart(SimpleNamespace(apart=[(1.0, 0.5)], lasted=10.0))


def test_what_grows_and_what_is_lost_is_noticed():
    flat = [50.0, *range(90, 110)] + [100.0 + k % 3 for k in range(200)]
    assert soak_checks.check_flat("memory", flat, 0.0, 4.0) == [101.0, 101.0]
    with pytest.raises(AssertionError, match="memory grew from"):
        soak_checks.check_flat("memory", [100.0 + 0.05 * k for k in range(200)], 0.0, 4.0)
    for nothing in (lambda: soak_checks.check_flat("memory", [], 0.0, 4.0), _no_prices_apart):
        _, (said,) = soak_checks.results_of({"a check": nothing})
        assert said.startswith("a check: the soak is too short for this check")
    events = [json.dumps({"kind": "record", "lease": lease}) for lease in ([1, 2], [0, 0], [3])]
    soak_checks.check_recorded(events, [1, 3])
    with pytest.raises(AssertionError, match="4"):
        soak_checks.check_recorded(events, [1, 4])
    with pytest.raises(AssertionError, match="2 was recorded twice"):
        soak_checks.check_recorded([*events, events[0].replace("1", "5")], [])


def test_a_release_gives_back_what_it_costs_and_no_more():
    def least(*lines):
        return check_budget(soak_checks.Notes.of(lines).leases.values(), 0.1, 5.0)

    lease, other = "lease 1 0 1 3", "lease 2 10 11 5"
    assert least(lease, "released 1 4 5", other) == pytest.approx(0.1)
    assert least(lease, "releasing 1 4", other) == pytest.approx(1.1)  # nobody knows when
    assert least(lease, "released 1 4 10.5", other) == pytest.approx(1.1)
    with pytest.raises(AssertionError, match=r"exceeded by 1\.9"):
        least(lease, "released 1 12 13", other)
    # It was paid by then, and what is given back has no room.
    with pytest.raises(AssertionError, match="exceeded by 1"):
        least(lease, "released 1 40 41", "lease 2 42 42 6")


@pytest.mark.parametrize(
    ("lines", "longest"),
    [
        (["running 0 1", "fetch 30 1 2 29", "fetch 70 1 2 69"], 40.0),
        (["running 0 1", "fetch 90 1 2 89"], 90.0),
        (["running 0 1", "unasked 55 1"], 55.0),
        (["running 0 1", "running 10 2", "fetch 70 1 2 69"], 90.0),
        (["running 0 1", "stopped 20 1", "running 80 1"], 20.0),
        (["running 0 1", "fetch 10 1 2 9", "stopped 20 1", "fetch 21 1 2 19"], 10.0),
    ],
)
def test_the_longest_wait_is_that_of_a_source_that_could_be_fetched(lines, longest):
    assert soak_checks.longest_wait(soak_checks.Notes.of(lines), 100.0) == longest


def test_a_failure_does_not_shorten_the_least_interval():
    clock = Clock()
    scheduler = Scheduler(":memory:", budget="100/h", clock=clock)
    scheduler.add("a", min_interval="2h")
    scheduler.failed(scheduler.lease()[0].id)
    clock.now += 1.9 * HOUR
    assert scheduler.lease() == []
    clock.now += 0.2 * HOUR
    assert len(scheduler.lease()) == 1


def two_processes(tmp_path, steady):
    """Return two schedulers of one store, with two sources of one host, and a function that waits
    and sets the clock; `steady`: which of them have another clock, which cannot be set."""
    clock, unset = Clock(), Clock()
    Scheduler(tmp_path / "crawl.db", budget="60/h", clock=clock).close()
    both = [Scheduler(tmp_path / "crawl.db", clock=clock) for _ in range(2)]
    for k in steady:
        both[k]._ledger.clock.steady = unset
    both[0].limit_host("h", "10min")
    both[0].add_many({"source": name, "host": "h"} for name in "ab")
    both[1].status()

    def wait(seconds, by=0.0):
        clock.now += seconds + by
        unset.now += seconds

    return *both, wait


def test_no_time_is_lost_when_the_clock_is_set_back(tmp_path):
    """Another process, which notices the next time the clock is set, would catch up with it."""
    one, other, wait = two_processes(tmp_path, steady=(0, 1))
    wait(300, -DAY)
    one.report(one.lease()[0].id)
    wait(300, DAY / 2)
    assert other.lease() == []
    wait(299)
    assert other.lease() == []
    wait(2)
    assert len(other.lease()) == 1


def test_who_has_lost_time_is_not_overtaken(tmp_path):
    """Of two processes one cannot tell time that has passed from a clock that was set back."""
    one, other, wait = two_processes(tmp_path, steady=(1,))
    wait(300, -DAY)
    one.report(one.lease()[0].id)
    wait(590)
    assert other.lease() == []
    wait(20)
    assert len(other.lease()) == 1


@pytest.mark.parametrize("by", [-DAY, DAY])
def test_leases_expire_in_the_time_of_a_clock_that_was_set(by):
    clock, steady = Clock(), Clock()
    scheduler = Scheduler(":memory:", budget="100/h", clock=clock)
    scheduler._ledger.clock.steady = steady  # as that of the system
    scheduler.add("a")
    clock.now += 60.0 + by
    steady.now += 60.0
    (lease,) = scheduler.lease(timeout="10min")
    assert lease.expires == pytest.approx(clock() + 600.0)


def test_clocks_of_machines_that_differ_shorten_no_interval(tmp_path):
    rng, steady, machines, leased = random.Random(0), Clock(), [], []
    for by in (0.0, 50.0, -50.0):
        live = Scheduler(tmp_path / "crawl.db", budget="600/h", clock=lambda by=by: steady() + by)
        live._ledger.clock.steady = steady
        machines.append(live)
    machines[0].limit_host("h", "1min")
    machines[0].add_many({"source": name, "host": "h"} for name in "abcdefghijkl")
    for _ in range(200):
        steady.now += 7.0
        for lease in rng.choice(machines).lease():
            leased.append(steady())
            rng.choice(machines).report(lease.id, status=200)
    # Once each has seen the time of the others.
    assert min(after - before for before, after in pairwise(leased[2:])) >= 60.0


@pytest.mark.parametrize("behind", [120.0, 50 * 365 * DAY])
def test_a_machine_whose_clock_is_far_behind_sets_no_other_forth(tmp_path, behind):
    """What it adds to its clock, as where it starts in 1970, is not what a third machine would add
    whose clock is some minutes behind, and that is started again."""
    steady, ahead = Clock(), 0.0
    Scheduler(tmp_path / "crawl.db", budget="60/h", clock=steady).close()
    for by in (0.0, -600.0 - behind, -100.0) * 4:
        with Scheduler(tmp_path / "crawl.db", clock=lambda by=by: steady() + by) as live:
            live._ledger.clock.steady = steady
            live.add(f"{steady()}")
            ahead = max(ahead, live._ledger.state.time - steady())
        steady.now += 10.0
    assert ahead == 0.0


@pytest.mark.parametrize("by", [-DAY, DAY])
def test_a_clock_that_is_set_during_a_fetch_does_not_shorten_the_interval_of_a_host(by):
    clock, steady = Clock(), Clock()
    scheduler = Scheduler(":memory:", budget="100/h", clock=clock)
    scheduler._ledger.clock.steady = steady  # as that of the system
    scheduler.limit_host("h", "1h")
    scheduler.add_many({"source": name, "host": "h"} for name in "ab")

    def wait(seconds, by=0.0):
        clock.now += seconds + by
        steady.now += seconds

    (lease,) = scheduler.lease(timeout="10min")
    wait(60)
    at = clock()
    wait(60, by)
    scheduler.report(lease.id, at=at)
    wait(0.9 * HOUR)
    assert scheduler.lease() == []
    wait(0.2 * HOUR)
    assert len(scheduler.lease()) == 1
