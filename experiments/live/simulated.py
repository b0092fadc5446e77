"""The reference crawl without sockets: the same scheduler, looked at when the crawler looks at it.

It takes a fifth of the time and collects the same (tested), so that many seeds can be tried.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from ephemeral_crawl.crawl.urls import host_of
from ephemeral_crawl.live import Lease, Scheduler
from experiments.live.over_http import POLL, START, address
from experiments.live.world import Answer, World

if TYPE_CHECKING:
    from experiments.live.sitemaps import Sitemap

_PARALLEL = 8
_SHORTEST = 1.0  # seconds between two looks at the schedule
_PORT = 1


def simulate(
    world: World,
    per_hour: float,
    *,
    per_host: float = 0.0,
    pings: bool = False,
    informed: bool = False,
    make: Callable[[Callable[[], float]], Any] | None = None,
    sitemaps: Sequence[Sitemap] = (),
) -> Scheduler:
    """Crawl a world to its end, as `crawl` does; return the scheduler.

    Arguments:
        per_host: least time between two fetches of a host, seconds; 0: none.
        pings: whether the scheduler is told of the world's pings.
        informed: whether a feed that turns out to be in an outage is paused until its end, which
            nobody knows: a reference.
        make: makes what is used as the scheduler, given its clock; default: one scheduler.
        sitemaps: of the feeds, each of which is a source, too; in the log of the world the first
            of them is −1, the next −2 and so on.
    """
    now = 0.0

    def clock() -> float:
        return START + now

    scheduler = (
        make(clock) if make else Scheduler(":memory:", budget=f"{per_hour:g}/h", clock=clock)
    )
    names = [address(world, i, _PORT) for i in range(world.number)]
    numbers = {name: i for i, name in enumerate(names)}
    scheduler.add_many({"source": name, "host": host_of(name)} for name in names)
    for host in {host_of(name) for name in names} if per_host else ():
        scheduler.limit_host(host, per_host)
    maps = {f"http://site{k}.example/sitemap.xml": k for k in range(len(sitemaps))}
    for name, k in maps.items():
        scheduler.add(name, cost=sitemaps[k].cost)
        if every := sitemaps[k].every:
            scheduler.update(name, min_interval=every, max_interval=every)
    order = count()
    # What happens, with the time: pings, and answers that servers are slow to give.
    events: list[tuple[float, int, Callable[[], None]]] = []
    under_way = 0
    ends = [0] * world.number  # items that the crawler has seen, of each feed

    def later(time: float, event: Callable[[], None]) -> None:
        heapq.heappush(events, (time, next(order), event))

    def ping(i: int) -> None:
        scheduler.signal(names[i], "websub")

    def failed(i: int, lease: Lease, answer: Answer) -> None:
        scheduler.failed(
            lease.id,
            kind=answer.kind,
            status=answer.status,
            retry_after=answer.retry_after or None,
            reason=None if answer.status else answer.kind,
        )
        outage = world.feeds[i].outage(now) if informed else None
        if answer.status == 410 or outage:
            scheduler.pause(lease.source)
        if outage and outage.end < world.end:
            later(outage.end, partial(scheduler.resume, lease.source))

    def finish(i: int, lease: Lease, answer: Answer) -> None:
        nonlocal under_way
        under_way -= 1
        if answer.status != 200:
            failed(i, lease, answer)
            return
        feed = world.feeds[i]
        span = feed.listed(now)
        world.show(i, now)
        new = slice(max(span.start, ends[i]), span.stop)
        ends[i] = max(ends[i], span.stop)
        times = (START + feed.time[new]).tolist()
        items = list(zip(times, feed.worth[new].tolist(), strict=True))
        scheduler.report(lease.id, items, status=200, at=START + now)
        if answer.moved and feed.moves and lease.source == names[i]:
            new_name = address(world, i, _PORT, second=True)
            scheduler.rename(lease.source, new_name)
            names[i], numbers[new_name] = new_name, i

    def fetch_sitemap(k: int, lease: Lease) -> None:
        world.log.append((now, -1 - k))
        changes = sitemaps[k].fetch(now)
        signals = [{"source": names[i], "kind": "sitemap", "at": START + at} for at, i in changes]
        times = [START + at for at, _ in changes]
        worths = zip(times, scheduler.signal_many(signals), strict=True)
        scheduler.report(lease.id, status=200, at=START + now, pings=list(worths))

    for time, i in world.pings if pings else []:
        later(time, partial(ping, i))
    while now < world.end:
        free = _PARALLEL - under_way
        leases = scheduler.lease(free, "5min") if free else []
        at_once = False
        for lease in leases:
            if lease.source in maps:
                fetch_sitemap(maps[lease.source], lease)
                at_once = True
                continue
            i = numbers[lease.source]
            answer = world.ask(i, now)
            under_way += 1
            if answer.delay:
                later(now + answer.delay, partial(finish, i, lease, answer))
            else:
                finish(i, lease, answer)
                at_once = True
        if at_once:
            continue
        wait = POLL
        if free > len(leases) and (due := scheduler.next_due()) is not None:
            wait = min(max(due - START - now, _SHORTEST), POLL)
        if not events or events[0][0] > now + wait:
            now += wait
            continue
        now, _, event = heapq.heappop(events)
        if now < world.end:
            event()
    return scheduler
