"""Random calls with values at the edges of what is accepted leave no wrong number."""

import contextlib
import math
import random
import warnings

import pytest

from ephemeral_crawl.live import Scheduler, snapshot
from tests.ephemeral_crawl.live.world import Clock

DURATIONS = (0.0, 1e-9, 1.0, 60.0, 3600.0, 86_400.0, 3.2e9)
COSTS = (1e-6, 0.5, 1.0, 1e6)
RATES = (None, "1/100d", "20/h", "1000000000/s", "1e-9%", "100%")
WORTHS = (0.0, 5e-324, 1e-300, 1e-30, 0.7, 1.0, 1e12)


class Calls:
    """A scheduler of extreme settings, and calls of it."""

    def __init__(self, seed):
        self.random, self.clock = random.Random(seed), Clock()
        pick = self.random.choice
        self.clock.now = pick([1.7e9, 0.0, -6e10, 2e11, 1e5])
        at_fetch = seed % 2
        self.scheduler = Scheduler(
            ":memory:",
            budget=pick(
                ["1/h", "20/h", "1/100d", "1000000000/s", "00:00 1000000000/s, 00:01 1/100d"]
            ),
            burst=pick([None, 1e-6, 1.0, 1e9]),
            worth_at="fetch" if at_fetch else "publication",
            half_life=pick([1.0, 3.2e9, "learn" if at_fetch else "3h"]),
            explore=pick([0.0, 0.05, 0.5, 1e-300]),
            clock=self.clock,
        )
        self.names, self.leases = [], []

    def time(self):
        now = self.clock()
        near = (now, now - 1e-9, now - 1.0, now - 3600.0 * self.random.random(), now + 1e9)
        return self.random.choice((None, -6.2e10, 0.0, 2.5e11, *near))

    def items(self):
        number = self.random.choice((0, 1, 2, 5, 1200))
        return [(self.time(), self.random.choice(WORTHS)) for _ in range(number)]

    def fetch(self):
        return self.random.choice(self.leases + self.names)

    def make(self):
        s, pick, draw = self.scheduler, self.random.choice, self.random.randrange(14)
        if draw <= 1 or not self.names:
            name = f"source {len(self.names)}"
            s.add(
                name,
                host=pick([None, "h", "g"]),
                cost=pick(COSTS),
                min_interval=pick(DURATIONS),
                max_interval=pick([None, *DURATIONS[2:]]),
                half_life=pick([None, 1.0, 3600.0, 3.2e9]),
                tag=pick([None, "a", "b"]),
                weight=pick([1e-6, 1.0, 1e6]),
            )
            self.names.append(name)
        elif draw == 2:
            s.limit_host(pick("hg"), pick(DURATIONS))
        elif draw == 3:
            ping = {"source": pick(self.names), "kind": pick("ab"), "at": self.time()}
            s.signal_many([ping] * pick([1, 50]))
        elif draw <= 5:
            for lease in s.lease(pick([1, 3, 100]), timeout=pick([1e-3, 60.0, 3.2e9])):
                self.leases.append(lease.id)
                assert all(map(math.isfinite, (lease.value, lease.index, lease.price))), lease
        elif draw <= 8:
            told = {
                "at": self.time(),
                "again_after": pick(DURATIONS),
                "cost": pick([None, 0.0, *COSTS]),
            }
            told |= pick([{}, {}, {"pings": self.items()}])
            s.report(self.fetch(), self.items(), **told)
        elif draw == 9:
            s.failed(self.fetch(), retry_after=pick([None, *DURATIONS]), at=self.time())
        elif draw == 10:
            s.update(pick(self.names), cost=pick(COSTS), min_interval=pick(DURATIONS))
        elif draw == 11:
            s.limit_tag(pick("ab"), least=pick(RATES), most=pick(RATES))
        elif draw == 12:
            pick([s.pause, s.resume])(**pick([{"tag": "a"}, {"host": "g"}]))
        else:
            by = pick([1.0, 3600.0, 86_400.0, 3e7, 1e9, -1e9])
            self.clock.now = min(max(self.clock.now + by, -6e10), 2.4e11)


def check(found):
    """Refuse numbers that are not finite."""
    for value in found:
        numbers = [x for x in vars(value).values() if isinstance(x, float)]
        assert all(map(math.isfinite, numbers)), value


@pytest.mark.parametrize("seed", range(10))
def test_extreme_values_leave_right_numbers(seed):
    calls = Calls(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(100):
            with contextlib.suppress(ValueError):  # such as a maximum below the minimum
                calls.make()
        s = calls.scheduler
        status, fleet = s.status(), s.overview(5)
        told = [s.explain(name) for name in calls.names]
        text = "\n".join(map(str, told))
        s.next_due()
    check([status, status.counts, fleet, *fleet.tags, *fleet.looks, *fleet.due, *fleet.soon, *told])
    assert all(0.0 <= x < math.inf for x in (*fleet.budgets, *fleet.collects, fleet.published))
    assert all(min(e.rate, e.worth, e.value, e.price) >= 0.0 for e in told)
    assert "nan" not in text
    assert "inf" not in text
    data = snapshot.to_bytes(s._ledger.state)
    assert snapshot.to_bytes(snapshot.from_bytes(data)) == data
