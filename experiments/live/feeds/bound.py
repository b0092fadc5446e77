"""What no crawler that learns nothing but what it fetches can exceed, however much it knows.

A feed of rate Λ and mean worth ξ̄ that is fetched f times per second collects at most
u f (1 − e^(−μ/f)) per second, with u = Λξ̄/μ, since that is concave in f. The bound is the largest
sum of these for which fetches cost the budget, and those of each host not more than it accepts, on
average over the whole time: two relaxed constraints, each with a price (as in
`agents.theory.relaxation`). A server that fails one time in eight takes 8/7 requests a fetch.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from agents.theory.closed_form import continuous_ages_reaching
from experiments.live.feeds.world import DECAY, FAILS, HOUR, Nature, World

_HIGHEST = 1e3  # price of a request


def bound(world: World, per_hour: float, per_host: float = 0.0) -> float:
    """Return the largest expected worth collected ÷ expected worth published.

    Arguments:
        per_host: least time between two fetches of a shared host, seconds.
    """
    feeds, end = world.feeds, world.end
    full = np.array([feed.rate * feed.mean for feed in feeds]) / DECAY
    time = np.array([_lives(feed.nature, feed.moment, end) for feed in feeds])
    success = np.array([1 - FAILS if f.nature in _FAILING else 1.0 for f in feeds])
    host = np.array([-1 if feed.host is None else feed.host for feed in feeds])

    def requests(price: np.ndarray) -> np.ndarray:
        """Requests to each feed, at a price of each."""
        share = price / (success * full)
        age = continuous_ages_reaching(share, np.ones_like(share))
        return DECAY / np.maximum(age, 1e-9) / success * time

    def prices(price: float) -> np.ndarray:
        """Price of a request to each feed, with that of its host."""
        found = np.full(len(feeds), price)
        for k in set(host[host >= 0].tolist()) if per_host else ():
            here = host == k

            def excess(more: float, here: np.ndarray = here) -> float:
                return float(requests(found + more)[here].sum()) - end / per_host

            if excess(0.0) > 0.0:
                found[here] += brentq(excess, 0.0, _HIGHEST, xtol=1e-6)
        return found

    def spent(price: float) -> float:
        return float(requests(prices(price)).sum()) - per_hour * end / HOUR

    least = 1e-6
    value = brentq(spent, least, _HIGHEST, xtol=1e-6) if spent(least) > 0.0 else least
    fetches = requests(prices(value)) * success / time
    gap = 1.0 / np.maximum(fetches, 1e-12)
    collected = full * -np.expm1(-DECAY * gap) / gap * time
    return float(collected.sum() / (full * DECAY * time).sum())


_FAILING = (Nature.BUSY, Nature.BROKEN)


def _lives(nature: Nature, moment: float, end: float) -> float:
    """Return how long a feed publishes, seconds."""
    if nature is Nature.BORN:
        return end - moment
    return moment if nature in (Nature.GONE, Nature.SILENT) else end
