"""robots.txt: pages heed it, feeds do not."""

import asyncio

import pytest

from ephemeral_crawl.crawl import robots
from ephemeral_crawl.crawl.client import Response
from ephemeral_crawl.crawl.robots import EXPIRY, LONGEST_DELAY, Disallowed, Robots, rules_of
from tests.ephemeral_crawl.crawl.site import feed, message
from tests.ephemeral_crawl.crawl.test_crawler import Bench

PAGE = message(200, b"<!DOCTYPE html><html><p>Hello")


def asked(bench, path):
    return sum(other == path for other, _ in bench.site.asked)


def test_pages_are_fetched_as_robots_txt_allows_and_feeds_as_they_are_due():
    bench = Bench()
    rules = b"User-agent: *\nDisallow: /home\nDisallow: /a\nCrawl-delay: 30"
    bench.site.answers |= {"/robots.txt": message(200, rules), "/a": message(200, feed(1))}
    bench.site.answers |= {"/home": PAGE, "/open": PAGE}
    bench.run(36.0, "/home", "/open", "/a")
    assert asked(bench, "/home") == 1  # which tells that it is a page
    assert asked(bench, "/open") > 1
    assert asked(bench, "/a") > 1
    assert asked(bench, "/robots.txt") == 2  # once a day
    told = bench.scheduler.explain(bench.site.url("/home"))
    assert f"{bench.site.url('/robots.txt')} does not allow this program to fetch it" in str(told)
    assert told.failures == 1
    assert bench.scheduler.host_limit("127.0.0.1") == 30.0
    counts = bench.scheduler.status().counts
    assert counts.released == sum(not visit.allowed for visit in bench.visits) > 0
    assert counts.fetched + counts.failed == sum(visit.allowed for visit in bench.visits)


def test_a_crawl_delay_holds_as_long_as_robots_txt_has_it():
    bench, limits = Bench(), []
    asks = message(200, b"User-agent: *\nCrawl-delay: 30")
    # What robots.txt says from day to day, and the limit that others set then.
    days = iter([(asks, 10.0), (asks, 60.0), (asks, 10.0), (message(404), None), (asks, None)])

    def answer(headers):
        limits.append(bench.scheduler.host_limit("127.0.0.1"))
        said, own = next(days)
        if own is not None:
            bench.scheduler.limit_host("127.0.0.1", own)
        return said

    bench.site.answers |= {"/robots.txt": answer, "/open": PAGE}
    bench.run(108.0, "/open")
    assert limits == [0.0, 30.0, 60.0, 30.0, 10.0]


def test_a_site_without_a_crawl_delay_does_not_end_that_of_another_after_a_restart():
    bench, other, limits = Bench(), "http://127.0.0.1:9", []
    bench.scheduler.add(f"{other}/", host="127.0.0.1")
    bench.scheduler.limit_host("127.0.0.1", 30.0)
    bench.memory.note_delay(other, "127.0.0.1", 30.0)  # as the process before did
    bench.memory.note_limit("127.0.0.1", 5.0, 30.0)

    def answer(headers):
        limits.append(bench.scheduler.host_limit("127.0.0.1"))
        if len(limits) == 2:
            bench.scheduler.remove(f"{other}/")
        return message(404)

    bench.site.answers |= {"/robots.txt": answer, "/open": PAGE}
    bench.run(60.0, "/open")
    assert limits[:2] == [30.0, 30.0]
    assert bench.scheduler.host_limit("127.0.0.1") == 5.0


def test_a_page_waits_until_robots_txt_can_be_read():
    bench, answers, times = Bench(), iter([503, 429, 404]), []

    def answer(headers):
        times.append(bench.loop.time())
        said.append(str(bench.scheduler.explain(bench.site.url("/home"))))
        return message(next(answers))

    said = []
    bench.site.answers |= {"/robots.txt": answer, "/home": PAGE}
    bench.run(24.0, "/home")
    assert len(times) == 3
    assert times[1] - times[0] >= 600.0
    assert times[2] - times[1] >= 1200.0
    assert "/robots.txt cannot be read: HTTP 503" in said[1]
    assert asked(bench, "/home") > 1
    assert [visit.allowed for visit in bench.visits[:4]] == [True, False, False, True]


class Sites:
    """Sites that answer with a status and rules; `asked` holds what was fetched."""

    user_agent = "robot/1.0"

    def __init__(self):
        self.status, self.asked = 503, []

    async def get(self, address):
        self.asked.append(address)
        return Response(self.status, {}, b"User-agent: *\nCrawl-delay: 99999", address, None)


def test_robots_txt_is_asked_for_more_and_more_rarely_until_it_answers():
    sites, now, url = Sites(), [0.0], "https://a.example/a"
    rules = Robots(sites, lambda: now[0])

    async def wait():
        with pytest.raises(Disallowed) as error:
            await rules.check(url)
        return error.value.again_after

    async def main():
        waits = []
        for _ in range(9):
            waits.append(await wait())
            now[0] += waits[-1]
        sites.status = 200
        assert await rules.check(url) == LONGEST_DELAY  # however long it asks for
        sites.status = 503
        times = []
        while len(sites.asked) < 12:
            now[0] += 60.0
            assert await rules.check(url) == LONGEST_DELAY  # what it said before holds
            times += [now[0]] * (len(sites.asked) > 10 + len(times))
        return waits, times[1] - times[0]

    waits, again = asyncio.run(main())
    assert waits[:3] == [600.0, 1200.0, 2400.0]
    assert waits[-1] == EXPIRY
    assert again == 600.0  # as after the first failure


def test_the_rules_of_the_sites_that_were_asked_last_are_remembered(monkeypatch):
    monkeypatch.setattr(robots, "_MOST_SITES", 2)
    sites = Sites()
    sites.status = 404
    rules = Robots(sites, lambda: 0.0)

    async def main():
        for name in "abacab":
            await rules.check(f"https://{name}.example/")

    asyncio.run(main())
    assert [address[8] for address in sites.asked] == ["a", "b", "c", "b"]


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", True),
        ("User-agent: *\nDisallow: /", False),
        ("User-agent: *\nDisallow:", True),
        ("User-agent: *\nDisallow: /\nAllow: /a/", True),
        ("User-agent: *\nDisallow: /*/b$", False),
        ("User-agent: *\nDisallow: /\n\nUser-agent: Some-Robot # ours\nDisallow: /c", True),
        (
            "User-agent: robot\nUser-agent: some-robot\nDisallow: /\n\nUser-agent: *\nAllow: /",
            False,
        ),
        ("User-agent: robot\nDisallow: /", True),  # another's name, which ours ends with
        ("User-agent: other\nDisallow: /", True),
        ("\ufffd\0: <html>", True),
        ("User-agent" + " " * 10**5 + "#\nDisallow: /", True),
    ],
)
def test_rules_are_those_of_the_longest_name_and_the_longest_path(text, allowed):
    rules = rules_of(text, "some-robot/1.0 (+https://example.org)")
    assert rules.can_fetch("https://example.org/a/b", "robot") == allowed
