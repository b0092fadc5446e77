"""What pings are worth, and so looks at documents that announce what others publish.

A sitemap collects nothing itself: it announces what other sources have. So its items are the pings
that it delivers, each worth what the fetch that it brings forward is expected to collect, less the
price, beyond what would have been collected without it (`agents.theory.closed_form.notice_gain`, at
the belief about the source that was pinged). Rate and mean worth of these items are learnt like
those of any source, and the cost of its fetches, too: so a sitemap has an index, and gets its part
of the budget at the one price. A ping of something that was fetched since, is due anyway, or whose
pings are hardly ever true, is worth nothing or little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import signed
from agents.theory.closed_form import notice_gain
from crawl_env.compiled import compiled
from ephemeral_crawl.live import learning, life, outcomes, price
from ephemeral_crawl.live.columns import NEVER, STOPPED, Sources
from ephemeral_crawl.live.learning import Shared

if TYPE_CHECKING:
    from ephemeral_crawl.live.state import State


def gains(state: State, pings: Sequence[Sequence[Any]], now: float) -> NDArray[np.float64]:
    """Return what pings are worth that are about to be recorded, (K,) ≥ 0.

    Arguments:
        pings: row, kind and time of each, as `outcomes.ping_events` returns them.
    """
    rows, place = np.unique(np.array([row for row, _, _ in pings]), return_inverse=True)
    number = {kind: k for k, kind in enumerate(state.kinds)}
    kinds = np.array([number.get(kind, len(number)) for _, kind, _ in pings], dtype=np.uint8)
    return _gains(
        state.table[rows],  # a copy
        state.shared_with_kinds(int(kinds.max()) + 1),
        place.astype(np.int32),
        kinds,
        np.array([at for _, _, at in pings], dtype=np.float64),
        state.price_at(now),
        now,
    )


@compiled
def _gains(
    sources: Sources,
    shared: Shared,
    rows: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    at: NDArray[np.float64],
    price_now: float,
    now: float,
) -> NDArray[np.float64]:
    """Return what pings are worth, one after the other; it records them."""
    worth = np.zeros(len(rows))
    for k in range(len(rows)):
        i = signed(rows[k])
        if sources.fetched[i] == NEVER or sources.lease[i] != 0 or sources.marks[i] & STOPPED:
            continue
        estimate = learning.belief(sources, shared, i)
        ceiling, quiet = price.planned(estimate, shared.optimism)
        before = price.waiting(sources, i, now, estimate, ceiling, quiet)
        outcomes.ping(sources, shared, rows[k : k + 1], kinds[k : k + 1], at[k : k + 1])
        estimate = learning.belief(sources, shared, i)
        ceiling, quiet = price.planned(estimate, shared.optimism)
        more = price.waiting(sources, i, now, estimate, ceiling, quiet) - before
        level = price.level_at(sources, i, price_now, ceiling)
        worth[k] = life.answering(sources, shared, i, now) * notice_gain(before, more, quiet, level)
    return worth
