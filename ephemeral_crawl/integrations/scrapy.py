"""A mix-in for spiders of Scrapy 2.13 and later, which fetch for ever what is due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from typing import Any

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.live.arguments import Duration, Time, retry_after

_LONGEST_SLEEP = 60.0  # seconds between two looks at the schedule: others may change it


class ScheduledSpider:
    """Yields requests when their sources are due, and reports what the callback finds.

    Put it before `scrapy.Spider`, give `scheduler`, whose sources are URLs, and define `find`.
    Delays, limits and robots.txt are Scrapy's own; `lease_time` must leave time for them. Redirects
    are followed by Scrapy.

        class News(ScheduledSpider, scrapy.Spider):
            name = "news"
            scheduler = Scheduler("sqlite:///news.db", budget="20/h")
            seen = set()

            def find(self, response):
                for entry in response.css("article"):
                    link = entry.css("a::attr(href)").get()
                    if link not in self.seen:
                        self.seen.add(link)
                        yield entry.attrib["datetime"], 1.0, {"title": entry.css("h2::text").get()}
    """

    scheduler: Scheduler
    lease_time: Duration = "10min"
    lease_limit: int = 16  # requests that wait for Scrapy at once

    def find(self, response: Response) -> Iterable[tuple[Time | None, float, Any]]:
        """Return time of publication, worth, and an item for the pipelines, of all that is new.

        What was returned before would count as new: leave it out.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define `find`")

    async def start(self) -> AsyncIterator[Any]:
        """Yield the requests of sources that are due."""
        self._report = asyncio.Event()
        while True:
            self._report.clear()
            leases = self.scheduler.lease(self.lease_limit, self.lease_time)
            for lease in leases:
                yield Request(
                    lease.source,
                    callback=self._fetched,
                    errback=self._failed,
                    dont_filter=True,
                    cb_kwargs={"lease": lease.id},
                    # The scheduler tries again, and decides when.
                    meta={"dont_retry": True, "handle_httpstatus_list": [304]},
                )
            if not leases:
                due = self.scheduler.next_due()
                wait = _LONGEST_SLEEP if due is None else due - time.time()
                await self._wait(min(max(wait, 0.1), _LONGEST_SLEEP))

    async def _wait(self, seconds: float) -> None:
        """Wait, but no longer than until a report: its source may be due before all others."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._report.wait(), seconds)

    def _fetched(self, response: Response, lease: int) -> Iterator[Any]:
        entries: list[tuple[Time | None, float, Any]] = []
        failure: Exception | None = None
        try:
            if response.status != 304:
                entries.extend(self.find(response))  # what was found before an error stays in it
            self.scheduler.report(
                lease,
                [(published, worth) for published, worth, _ in entries],
                status=response.status,
            )
        except Exception as error:
            self.scheduler.failed(lease, status=response.status, reason=str(error))
            failure = error
        finally:
            self._report.set()
        for _, _, item in entries:  # after an error, too: `find` may leave it out from now on
            yield item
        if failure is not None:
            raise failure

    def _failed(self, failure: Any) -> None:
        """Report a failure: an answer other than 2xx, none at all, or a refusal by robots.txt."""
        lease = failure.request.cb_kwargs["lease"]
        answer = getattr(failure.value, "response", None)
        if answer is not None:
            text = (answer.headers.get("Retry-After") or b"").decode("latin-1")
            wait = retry_after(text, time.time())
            self.scheduler.failed(lease, status=answer.status, retry_after=wait)
        elif failure.check(IgnoreRequest):
            self.scheduler.release(lease, again_after="24h", reason=str(failure.value))
        else:
            self.scheduler.failed(lease, reason=str(failure.value))
        self._report.set()
