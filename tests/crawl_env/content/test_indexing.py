"""The queue in front of the indexing engine, against a plain simulation of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_env import CrawlEnv, Engine, ItemLog, Sources, Trace

DECAY = (0.1, 0.7, 0.3)
STEPS = 12
RATES = (0.5, 1.0, 1.25, 2.0, 3.4, math.inf)


@dataclass
class Plain:
    """A queue of (published, utility, source), item by item; times are in steps."""

    rate: float
    capacity: float
    discipline: str
    threshold: float
    remains: Any  # decay · age → fraction of utility left
    queue: list[tuple[float, float, int]] = field(default_factory=list)
    work: float = 0.0  # on the item that is next

    def worth(self, item: tuple[float, float, int], now: float) -> float:
        published, utility, source = item
        return utility * float(self.remains(DECAY[source] * (now - published)))

    def step(self, found: list[tuple[float, float, int]], now: float) -> dict[str, list[float]]:
        """Return number and utility of what became of the items; `found` in log order."""
        before = list(self.queue)
        found = [item for item in found if self.worth(item, now) > 0]
        found.sort(key=lambda item: (item[2], now - item[0]))
        taken = [item for item in found if self.worth(item, now) >= self.threshold]
        refused = [item for item in found if self.worth(item, now) < self.threshold]
        line = before + taken
        if self.discipline == "value":
            line.sort(key=lambda item: -self.worth(item, now))
        self.work += self.rate
        indexed = []
        while line and self.work > 1 - 1e-6:
            indexed.append(line.pop(0))
            self.work -= 1
        if not line:
            self.work = 0.0
        kept = line if math.isinf(self.capacity) else line[: int(self.capacity)]
        lost = line[len(kept) :]
        self.queue = [item for item in kept if self.worth(item, now + 1) > 0]

        def sums(items: list[tuple[float, float, int]], when: float) -> list[float]:
            return [float(len(items)), sum(self.worth(item, when) for item in items)]

        decayed = [a - b for a, b in zip(sums(kept, now), sums(self.queue, now + 1), strict=True)]
        return {
            "collected": sums(found, now),
            "refused": sums(refused, now),
            "indexed": sums(indexed, now),
            "lost": sums(lost, now),
            "decayed": decayed,
            "backlog": sums(self.queue, now + 1),
        }


def lomax(z: float) -> float:
    """Return (1 + z/s)^−2, cut off where 1e-4 is left, with s such that it integrates to 1."""
    end = 10.0**2 - 1.0  # in units of s
    scale = 1.0 / (1.0 - 1.0 / (1.0 + end))
    return (1.0 + z / scale) ** -2.0 if z < end * scale else 0.0


REMAINS = {"exponential": lambda z: math.exp(-z) if z < 37 else 0.0, "lomax": lomax}

items = st.lists(
    st.tuples(
        st.integers(0, 64 * STEPS - 1).map(lambda k: k / 64),  # exact ages
        st.floats(0.1, 10.0),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=60,
    unique_by=lambda item: item[0],
)
engines = st.builds(
    Engine,
    rate=st.sampled_from(RATES),
    capacity=st.sampled_from([None, 0, 1, 2, 5]),
    discipline=st.sampled_from(["fifo", "value"]),
    threshold=st.sampled_from([0.0, 0.5, 2.0]),
)
choices = st.lists(st.integers(0, 3), min_size=STEPS, max_size=STEPS)


def log_of(published: list[tuple[float, float, int]]) -> ItemLog:
    time, utility, source = zip(*sorted(published), strict=True)
    return ItemLog(["a", "b", "c"], source, time, utility, start=0.0, end=float(STEPS))


def env_of(published: list[tuple[float, float, int]], **arguments: Any) -> CrawlEnv:
    """Return an environment that replays items from its first step on, two crawls per step."""
    decay = arguments.pop("decay", "exponential")
    trace = Trace(log_of(published), random_start=False, decay=decay)
    fleet = Sources([1.0] * 3, [1.0] * 3, DECAY, names=["a", "b", "c"])
    return CrawlEnv(fleet, 2, arrivals=trace, start="empty", features=("backlog",), **arguments)


@given(items, engines, choices, st.sampled_from(sorted(REMAINS)))
@settings(max_examples=150, deadline=None)
def test_item_by_item_as_a_plain_simulation(
    published: list[tuple[float, float, int]], engine: Engine, left_out: list[int], decay: str
) -> None:
    env = env_of(published, engine=engine, decay=decay)
    env.reset(seed=0)
    capacity = math.inf if engine.capacity is None else engine.capacity
    plain = Plain(engine.rate, capacity, engine.discipline, engine.threshold, REMAINS[decay])
    waits = sorted(published)
    for now in range(STEPS):
        picked = [i for i in range(3) if i != left_out[now]][:2]
        found = [item for item in waits if item[0] < now and item[2] in picked]
        waits = [item for item in waits if item not in found]
        expected = plain.step(found, now)
        action = np.full(3, -1.0, dtype=np.float32)
        action[picked] = 1.0
        observation, reward, _, _, info = env.step(action)
        for name, numbers in expected.items():
            np.testing.assert_allclose(info["engine"][name], numbers, 1e-9, 1e-9, err_msg=name)
        np.testing.assert_allclose(reward, expected["indexed"][1], 1e-9, 1e-12)
        assert np.all(observation == expected["backlog"][0])
