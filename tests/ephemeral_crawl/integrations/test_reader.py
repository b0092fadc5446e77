"""The plug-in in lemon24/reader, with feeds in files."""

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from reader import make_reader

from ephemeral_crawl.integrations.reader import ScheduledReader
from ephemeral_crawl.live import Scheduler

NOW = 1_700_000_000.0


def write(path, hours):
    items = "".join(
        f"<item><guid>{h}</guid><title>{h}</title><link>http://a.example/{h}</link><pubDate>"
        f"{format_datetime(datetime.fromtimestamp(NOW - 3600 * h, UTC))}</pubDate></item>"
        for h in hours
    )
    path.write_text(
        "<?xml version='1.0'?><rss version='2.0'><channel><title>Feed</title>"
        f"<link>http://a.example</link><description>d</description>{items}</channel></rss>"
    )


@pytest.fixture
def feeds(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / f"{name}.xml", range(1, 11))
    reader = make_reader(":memory:", feed_root=str(tmp_path))
    for name in ("a.xml", "b.xml", "missing.xml"):
        reader.add_feed(name)
    yield reader, tmp_path
    reader.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_feeds_are_updated_when_due_and_their_entries_reported(feeds):
    reader, folder = feeds
    now = [NOW]
    scheduler = Scheduler(":memory:", budget="4/h", clock=lambda: now[0])
    scheduled = ScheduledReader(reader, scheduler)
    reader.disable_feed_updates("b.xml")
    assert scheduled.update() == 2
    status = scheduler.status()
    assert (status.sources, status.paused, status.failing, status.counts.items) == (3, 1, 1, 10)
    assert scheduler.explain("a.xml").rate == pytest.approx(1.0, rel=0.5)
    interval = scheduler.explain("a.xml").interval
    # Stored with its report, before that of the next feed.
    assert 0.5 < reader.get_tag("a.xml", ".reader.update")["interval"] * 60 / interval < 2.0

    write(folder / "a.xml", range(11))
    now[0] = scheduler.next_due("a.xml") + 1.0
    scheduled.update()
    assert scheduler.status().counts.items == 11
    now[0] = scheduler.next_due("a.xml") + 1.0
    fetched = scheduler.status().counts.fetched
    scheduled.update()  # nothing has changed
    assert scheduler.status().counts.fetched == fetched + 1
    assert scheduler.status().counts.items == 11


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_updates_that_were_not_leased_are_reported_and_feeds_come_and_go(feeds):
    reader, _ = feeds
    scheduler = Scheduler(":memory:", budget="4/h")
    scheduled = ScheduledReader(reader, scheduler)
    scheduled.follow()
    reader.update_feed("b.xml")
    assert scheduler.explain("b.xml").fetched_at is not None
    assert scheduler.status().counts.items == 10
    reader.delete_feed("a.xml")
    scheduled.follow()
    assert scheduler.sources() == ["b.xml", "missing.xml"]
