"""The stores of shards as one, for programs that put sources in or take them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ephemeral_crawl.live import Lesson, Scheduler
from ephemeral_crawl.live.arguments import Duration
from ephemeral_crawl.live.journal.sqlite import is_new
from ephemeral_crawl.live.scheduler import check_apart

T = TypeVar("T")


def make_store(
    store: Path, changes: Callable[[Scheduler], Iterable[T]], **settings: Any
) -> list[T] | None:
    """Make a store, and return what changes of it yield: in memory, so that what is refused leaves
    no store behind, and none is removed that another process makes meanwhile. None if there is one,
    in which the changes remain to be made.

    Arguments:
        settings: of the scheduler.
    """
    if not is_new(store):
        return None
    with Scheduler(":memory:", **settings) as new:
        done = list(changes(new))
        try:
            new.copy(store)
        except ValueError:
            if is_new(store):
                raise
            return None  # another process has made it meanwhile
    return done


class Stores:
    """Those methods of `Scheduler` that imports and exports need, for the shards of a fleet.

    What concerns a source is done in the store that it belongs to; in each of them all is done or
    nothing. Servers may use the stores at the same time.

    Arguments:
        shards: in their order.
        owner: returns the number of the shard that a source belongs to.

    Raises:
        ValueError: two shards are in the same store.
    """

    def __init__(self, shards: Sequence[Scheduler], owner: Callable[[str], int]) -> None:
        check_apart(shards)
        self._shards, self._owner = shards, owner

    def add_many(self, sources: Iterable[Mapping[str, Any]], *, exist_ok: bool = False) -> int:
        """Add sources; return how many were new."""
        parts = self._parts(sources, lambda source: str(source.get("source")))
        return sum(shard.add_many(part, exist_ok=exist_ok) for shard, part in parts)

    def limit_hosts(self, intervals: Mapping[str, Duration]) -> None:
        """Limit hosts, each where its sources are."""
        for shard, part in self._parts(intervals.items(), lambda host: host[0]):
            shard.limit_hosts(dict(part))

    def teach(self, lessons: Iterable[Lesson]) -> int:
        """Learn from lessons about sources that were not fetched yet; return how many there are."""
        parts = self._parts(lessons, lambda lesson: lesson.source)
        return sum(shard.teach(part) for shard, part in parts)

    def pause(self, source: str) -> None:
        """Do not lease a source."""
        self._home(source).pause(source)

    def remove(self, source: str) -> None:
        """Remove a source and its estimates."""
        self._home(source).remove(source)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Return a context in which the changes of each store are stored by one commit."""
        with ExitStack() as stack:
            for shard in self._shards:
                stack.enter_context(shard.together())
            yield

    def settings(self, source: str) -> dict[str, Any]:
        """Return the settings of a source."""
        return self._home(source).settings(source)

    def sources(self) -> list[str]:
        """Return the names of all sources, shard by shard."""
        return [name for shard in self._shards for name in shard.sources()]

    def __contains__(self, source: object) -> bool:
        return isinstance(source, str) and source in self._home(source)

    def __len__(self) -> int:
        return sum(len(shard) for shard in self._shards)

    def _home(self, source: str) -> Scheduler:
        return self._shards[self._owner(source)]

    def _parts(
        self, values: Iterable[T], name: Callable[[T], str]
    ) -> Iterable[tuple[Scheduler, list[T]]]:
        """Return what belongs to each shard, if anything does."""
        parts: list[list[T]] = [[] for _ in self._shards]
        for value in values:
            parts[self._owner(name(value))].append(value)
        return [(shard, part) for shard, part in zip(self._shards, parts, strict=True) if part]
