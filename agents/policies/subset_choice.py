"""From priorities to the number of a subset, for environments with discrete actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crawl_env import Task
from crawl_env.fleet.hosts import Hosts
from crawl_env.numerics import FloatArray
from crawl_env.simulation import selection

if TYPE_CHECKING:
    from agents.policies.base import ObservationView


class SubsetChoice:
    """Finds the subset that the environment would select under given priorities.

    Raises:
        ValueError: under `budget_rule="average"` the account is not shown.

    Where ages are not shown, ties go to the lower number.
    """

    def __init__(self, task: Task, agent: str) -> None:
        self._task = task
        if task.budget_rule == "average":
            from agents.policies.base import needs

            needs(task, agent, "account")
        # A random weight for each source gives every subset a sum of its own (mod 2⁶⁴).
        rng = np.random.default_rng(0)
        self._weight = rng.integers(0, 2**63, task.n, dtype=np.uint64)
        sums = np.array([self._weight[list(s)].sum(dtype=np.uint64) for s in task.subsets])
        self._order = np.argsort(sums)
        self._sums = sums[self._order]

    def __call__(self, priority: NDArray[np.float32], seen: ObservationView) -> NDArray[np.int64]:
        """Return the numbers of the subsets, (B,)."""
        mask = np.zeros(priority.shape, dtype=bool)
        if seen.shows("available"):  # the environment passes over the others in any set
            priority = np.where(seen["available"] > 0, priority, priority - 3).astype(np.float32)
        mask.reshape(-1)[selected(self._task, priority, seen, whole_sets=True)] = True
        sums = np.where(mask, self._weight, np.uint64(0)).sum(axis=-1, dtype=np.uint64)
        return self._order[np.searchsorted(self._sums, sums)]


def selected(
    task: Task,
    priority: NDArray[np.float32],
    seen: ObservationView,
    account: FloatArray | None = None,
    whole_sets: bool = False,
) -> NDArray[np.intp]:
    """Return the cells that the environment will crawl under given priorities, (K,) or (k, B).

    account: (B,), where it is known but not shown; unused where the budget holds every epoch.
    whole_sets: whether to count sources in that are shown to be unavailable.
    """
    # Of fleets drawn anew only priorities can have other costs; who needs them here knows them.
    drawn = task.draw is not None and task.action == "priority"
    cost = seen.sources.cost if drawn else task.sources.cost
    # Only the order of the last crawls matters, to settle ties.
    crawled_at = -seen["age"] if seen.shows("age") else np.zeros(priority.shape)
    if task.budget_rule == "epoch":
        account = None
    elif account is None or seen.shows("account"):
        # Shown in float32, which may round up and seem to pay for one source more.
        shown = seen["account"][:, 0]
        account = shown - np.spacing(np.abs(shown).astype(np.float32))
    whole = selection.whole_budget(cost, task.budget)
    passes = seen.shows("available") and not whole_sets
    allowed = seen["available"] > 0 if passes else None
    hosts = Hosts.of(task.sources, task.per_host)
    return selection.select(priority, crawled_at, cost, task.budget, whole, account, allowed, hosts)
