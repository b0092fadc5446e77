"""A few seconds of the soak, and what it has found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ephemeral_crawl.live import Scheduler
from tests.ephemeral_crawl.live import soak
from tests.ephemeral_crawl.live.world import DAY, HOUR, Clock

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_faults_of_all_kinds_break_no_promise():
    command = [sys.executable, "-m", soak.__name__, "--minutes", "0.08", "--seed", "1"]
    run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found = json.loads(run.stdout)
    assert found["fetches"] > 0
    assert found["events"] > found["fetches"] / 16


def test_a_failure_does_not_shorten_the_least_interval():
    clock = Clock()
    scheduler = Scheduler(":memory:", budget="100/h", clock=clock)
    scheduler.add("a", min_interval="2h")
    scheduler.failed(scheduler.lease()[0].id)
    clock.now += 1.9 * HOUR
    assert scheduler.lease() == []
    clock.now += 0.2 * HOUR
    assert len(scheduler.lease()) == 1


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
