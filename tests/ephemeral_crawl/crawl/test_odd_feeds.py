"""Each of the two hundred odd feeds is read, or refused in words."""

import pytest

from ephemeral_crawl.crawl.feeds import parse_feed
from tests.ephemeral_crawl.crawl.odd_feeds import URL, USUAL, corpus
from tests.refusals import refused

ODD = list(corpus())


def test_there_are_two_hundred_different_ones():
    assert len({odd.body for odd in ODD}) >= 200


@pytest.mark.parametrize("odd", ODD, ids=[odd.name for odd in ODD])
def test_odd_feeds_are_read_or_refused(odd):
    if isinstance(odd.expected, str):
        with refused(odd.expected):
            parse_feed(odd.body, url=URL)
        return
    items = parse_feed(odd.body, url=URL).items
    found = {"items": len(items)}
    if items:
        first = items[0]._asdict()
        found |= {name: first[name] for name in ("title", "link", "published")}
    assert found == {name: x for name, x in {**USUAL, **odd.expected}.items() if name in found}
