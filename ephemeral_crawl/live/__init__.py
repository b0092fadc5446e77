"""The live scheduler: which source to fetch next, when, and why."""

from ephemeral_crawl.live.agenda import Lease
from ephemeral_crawl.live.errors import SourceExists, UnknownLease, UnknownSource
from ephemeral_crawl.live.explanation import Explanation
from ephemeral_crawl.live.lessons import Lesson
from ephemeral_crawl.live.overview import Overview
from ephemeral_crawl.live.reporting import Counts
from ephemeral_crawl.live.scheduler import Scheduler
from ephemeral_crawl.live.status import Status
from ephemeral_crawl.live.tags import TagStatus

__all__ = [
    "Counts",
    "Explanation",
    "Lease",
    "Lesson",
    "Overview",
    "Scheduler",
    "SourceExists",
    "Status",
    "TagStatus",
    "UnknownLease",
    "UnknownSource",
]
