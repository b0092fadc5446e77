"""Looking one step ahead: each choice, and what the policies found earn, against exact figures."""

import numpy as np
import pytest

from agents.theory.engine.backlog import QueueIndex
from agents.theory.engine.joining import joining
from agents.theory.engine.lookahead import Fleet, Lookahead
from agents.theory.engine.optimum import EngineProcess
from agents.theory.engine.queue import kept_at_place, served
from crawl_env import Engine, Sources
from crawl_env.content.utility import Exponential

FLEET = Sources([2.0, 1.0, 0.5], [1.0, 0.7, 2.0], [0.3, 0.15, 0.2])
AGES = 8


def fleet_of(process):
    """What crawls bring, term by term."""
    service, capacity = process.service, process.engine.capacity
    longest = capacity + int(service.places.max())
    n, phases = len(process.sources), len(service.fractions)
    kept = kept_at_place(service, capacity, longest, process.sources.retention)
    number, credit = np.zeros((n, AGES)), np.zeros((n, AGES, phases, longest + 1))
    for i in range(n):
        threshold = process.engine.threshold
        found = joining(process.sources, i, AGES, longest, threshold, Exponential())
        number[i] = found.number
        for p in range(longest):
            credit[i, :, :, p] = found.utility[:, : longest - p] @ kept[i, :, p:].T
    cost = np.asarray(process.sources.cost, float)
    return Fleet(number, credit, cost, np.full(n, AGES - 1), float(process.budget))


@pytest.mark.parametrize(
    "engine",
    [
        Engine(rate=1.5, capacity=3, threshold=0.3),
        Engine(rate=1.2, capacity=2, service="poisson"),
        Engine(rate=3, capacity=0),
    ],
)
def test_each_choice_is_the_best_given_those_before_it(engine):
    rng = np.random.default_rng(3)
    process = EngineProcess(FLEET, 2, engine, AGES)
    phases, *_, states = process.shape
    value = rng.normal(size=(3, AGES, phases, states))
    total = sum(
        value[i].transpose(1, 0, 2).reshape(phases, *(AGES if j == i else 1 for j in range(3)), -1)
        for i in range(3)
    )
    alone = EngineProcess(FLEET, 1, engine, AGES)
    one, two = (np.array([p._worth(total, *each) for each in p._choices]) for p in (alone, process))
    phase, *age, backlog = (grid.ravel() for grid in np.indices(process.shape))
    moves = served(process.service, engine.capacity, process._longest)
    before = np.einsum(
        "naq,frq->nafr", value.reshape(3, AGES, -1), moves.reshape(*moves.shape[:2], -1)
    )
    policy = Lookahead(fleet_of(process), np.ascontiguousarray(before))
    priority = policy.priority(np.stack(age, axis=1) + 1, phase, backlog)
    first, second = np.argsort(-priority, axis=1)[:, :2].T
    assert (priority > 0).sum(axis=1).tolist() == [2] * first.size
    states = np.arange(first.size)
    np.testing.assert_array_equal(first, one.reshape(3, -1).argmax(axis=0))
    pairs = {frozenset(pair): p for p, pair in enumerate(process.actions)}
    two = two.reshape(3, -1)
    for i in range(3):
        others = [j for j in range(3) if j != i]
        worth = two[[pairs[frozenset((i, j))] for j in others]]
        here = first == i
        np.testing.assert_array_equal(second[here], np.array(others)[worth.argmax(axis=0)][here])


@pytest.mark.parametrize(
    ("fleet", "budget", "engine"),
    [
        # The best policy leaves the first source alone for ever once it is old.
        (
            Sources([2.1306, 0.50146], [1.27774, 0.47595], [0.26671, 0.54159]),
            1,
            Engine(rate=0.78962, capacity=8, service="poisson"),
        ),
        # What is crawled in the same step joins the queue by number, not by worth.
        (FLEET, 2, Engine(rate=2, capacity=3, service="poisson")),
    ],
)
def test_near_the_exact_optimum(fleet, budget, engine):
    ages = np.maximum(np.ceil(3 / fleet.decay_rate), 12).astype(int)
    process = EngineProcess(fleet, budget, engine, ages)
    phase, *age, backlog = (grid.ravel() for grid in np.indices(process.shape))
    index = QueueIndex(fleet, budget, engine).priority(np.stack(age, axis=1) + 1.0, phase, backlog)
    crawled = np.sort(np.argsort(-index, axis=1, kind="stable")[:, :budget], axis=1)
    subsets = {tuple(sorted(action)): a for a, action in enumerate(process.actions)}
    choice = np.array([subsets[tuple(row)] for row in crawled.tolist()]).reshape(process.shape)
    assert process.reward(choice) > 0.995 * process.optimum(1e-4)[0]
