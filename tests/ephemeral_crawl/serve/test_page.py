"""The page at /, also in a real browser."""

import html
import re
import time

import pytest

from ephemeral_crawl.crawl.schedule import describe
from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.live.reasons import CAUSES, cause_of
from ephemeral_crawl.serve import page
from tests.ephemeral_crawl.live.world import HOUR
from tests.ephemeral_crawl.serve import browser
from tests.ephemeral_crawl.serve.running import running

EVIL = (
    "https://e.example/<img src=x onerror=document.title='evil'>"
    "<script>document.title='evil'</script>"
)


@pytest.fixture(scope="module")
def client():
    now = time.time()
    scheduler = Scheduler(":memory:", budget="60/h", burst=50)
    names = [f"https://e{i}.example/feed" for i in range(5)]
    scheduler.add_many({"source": name, "host": name[8:18]} for name in [*names, EVIL])
    for lease in scheduler.lease(6):
        scheduler.report(lease.id, [(now - HOUR * k, 1.0) for k in range(1, 9)])
    why = "see <script>alert(1)</script> https://me:hunter2@e3.example/?token=hunter2"
    scheduler.failed(names[3], retry_after="2h", reason=why)
    scheduler.add("https://me:hunter2@new.example/")
    with running(scheduler) as client:
        yield client


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if browser.PROGRAM is None:
        pytest.skip("no chromium is installed")
    page = browser.Browser(tmp_path_factory.mktemp("chromium"))
    yield page
    page.close()


def test_the_page_says_what_is_due_fails_waits_and_what_the_budget_buys(client):
    text = client.get("/").text
    assert re.search(r"60 budget units an hour collect \d+% of what 7 sources publish", text)
    assert "A budget unit pays for one fetch of a source of cost 1." in text
    assert "since it has not been fetched yet" in text  # new.example
    assert '<h2 id="hosts">Waiting hosts</h2>' in text
    assert re.search(r"<th scope=\"row\">e3\.example</th><td>1</td>", text)
    assert text.count("<svg") == 1
    assert "hunter2" not in text
    assert "<img" not in text
    assert text.count("<script>") == 1  # ours
    assert "see &lt;script&gt;alert(1)&lt;/script&gt; https://***@e3.example/?token=***" in text
    sections = re.findall(r"<h2 id=\"(\w+)\">", text)
    assert sections == ["due", "soon", "buys", "collected", "failing", "hosts", "set"]


def test_the_page_says_which_rates_of_sitemaps_are_guesses():
    scheduler = Scheduler(":memory:", budget="60/h")
    scheduler.add_many({"source": name} for name in ("map", "other"))
    now = time.time()
    scheduler.report("map", pings=[])
    scheduler.report("other", pings=[(now - HOUR * k, 1.0) for k in range(9)])
    with running(scheduler) as client:
        text = client.get("/").text
    looks = text.partition('id="looks"')[2].partition("</section>")[0]
    rates = dict(re.findall(r">(\w+)</a></th>.*?/td><td>.*?/td><td>([^<]*)</td>", looks))
    assert {name: rate[-1] == "?" for name, rate in rates.items()} == {"map": True, "other": False}
    assert "Rates with a question mark are guesses." in looks


def test_the_page_shows_budgets_of_tags_and_sets_them():
    scheduler = Scheduler(":memory:", budget="60/h")
    scheduler.add("a", tag="<b>news")
    with running(scheduler) as client:
        for method, given in (
            ("limit_tag", {"tag": "<b>news", "least": "10%", "most": "5/h"}),
            ("configure", {"budget": "00:00 30/h, 12:00 30/h", "zone": "Europe/Paris"}),
        ):
            assert client.post(method, given).json == {"done": True}
        text = client.get("/").text
        assert "The budget is 00:00 30/h, 12:00 30/h (Europe/Paris), now 30/h." in text
        row = re.search(r'<th scope="row">&lt;b&gt;news</th><td>1</td><td>3</td><td>5</td>', text)
        assert row
        assert "<b>" not in text
        (_, tag) = client.get("/v1/tags").json
        assert (tag["tag"], tag["least"], tag["most"]) == ("<b>news", 3.0, 5.0)
        forms = re.findall(r'<form data-method="(\w+)">(.*?)</form>', text)
        assert [(method, re.findall(r' name="(\w+)"', fields)) for method, fields in forms] == [
            ("configure", ["budget", "zone"]),
            ("limit_tag", ["tag", "least", "most"]),
            ("pause", ["source", "host", "tag"]),
        ]
        told = client.post("limit_tag", {"tag": "news", "least": "120%"})
        assert told.status == 422
        assert "or a part up to '100%'" in told.json["message"]
        assert client.post("pause", {"tag": "<b>news"}).json == {"done": True}
        assert client.post("lease", {}).json == {"leases": []}
        sources = [{"source": "a", "weight": 2.0, "tag": None}]
        assert client.post("update_many", {"sources": sources}).json == {"done": True}
        assert client.get("/v1/explain?source=a").json["weight"] == 2.0
        assert len(client.post("lease", {}).json["leases"]) == 1


def test_the_page_says_what_waits_for_the_maximum_of_its_tag():
    scheduler = Scheduler(":memory:", budget="1000/h", clock=lambda: 1.7e9)
    scheduler.add_many({"source": f"a{i}", "tag": "news"} for i in range(9))
    scheduler.limit_tag("news", most="6/h")
    assert len(scheduler.lease(9)) == 3  # of a bucket that is half full
    scheduler.add("b")
    with running(scheduler) as client:
        text = client.get("/").text
        assert "6 more sources of the tag news would be due, but the maximum of" in text
        assert len(client.post("lease", {"limit": 9}).json["leases"]) == 1
    fleet = Scheduler(":memory:", budget="1/h")
    fleet.add("a")
    assert fleet.overview().tags_waiting == {}


def test_a_browser_pauses_and_resumes(chromium):
    scheduler = Scheduler(":memory:", budget="60/h")
    scheduler.add("a", tag="news")
    with running(scheduler) as client:
        chromium.open(f"http://127.0.0.1:{client.port}/")
        for k, paused in ((0, 1), (1, 0)):
            chromium.value("document.querySelector('#paused-tag').value = 'news'")
            chromium.value(
                f"document.querySelectorAll('form[data-method=pause] button')[{k}].click()"
            )
            chromium.until("document.querySelector('form[data-method=pause] output').innerText")
            chromium.value("document.querySelector('form[data-method=pause] output').value = ''")
            assert client.get("/v1/status").json["paused"] == paused


def test_what_the_budget_buys_has_labels(client):
    text = client.get("/").text
    for label in ("Worth collected per hour by budget", "0", "60", "120", "180", "240"):
        assert f'aria-label="{label}"' in text or f'text-anchor="middle">{label}</text>' in text
    names = re.findall(r'<th scope="row">([^<]*)</th><td>[\d.]+</td><td>[^<]*</td><td>\d+%', text)
    assert names == [
        *("a quarter", "half", "× 0.75", "as now", "× 1.5", "double", "× 3", "four times")
    ]


def test_a_source_is_searched_and_explained(client):
    found = client.get("/?source=e2.").text
    assert "https://e2.example/feed" in found
    why = client.get("/?source=https%3A%2F%2Fe2.example%2Ffeed").text
    assert "items per hour, worth" in why
    assert "its index is" in why
    assert "There is none." in client.get("/?source=nowhere").text


def test_advice_is_the_same_everywhere():
    scheduler = Scheduler(":memory:", budget="60/h", burst=1e3)
    told = [("dns", None), ("tls", None), ("format", 200), *(("http", x) for x in (403, 404, 410))]
    names = [f"{kind} {status}" for kind, status in told]
    scheduler.add_many({"source": name} for name in ("living", *names, "paused"))
    for name, (kind, status) in zip(names, told, strict=True):
        for _ in range(3):
            scheduler.failed(name, kind=kind, status=status)
            scheduler.report("living")
    scheduler.pause("http 410")
    scheduler.pause("paused")
    table = describe(scheduler, time.time)
    with running(scheduler) as client:
        page = html.unescape(client.get("/").text)
        for name, failure in zip(names, told, strict=True):
            answer = client.get(f"/v1/explain?source={name.replace(' ', '%20')}").json
            advice = CAUSES[cause_of(*failure)].advice
            assert answer["advice"].startswith(advice)
            for text in (page, table, str(scheduler.explain(name))):
                assert advice in text
        assert "--resume" in client.get("/v1/explain?source=paused").json["advice"]
        assert client.get("/v1/explain?source=living").json["advice"] == ""
        assert "what the 1 of 8 sources that is expected to answer publishes" in page
    assert "Paused: --resume FEED ends the pause:\n  paused" in table


def test_pictures_hold_what_they_show():
    plot = page._plot({"curve": [(0.0, 0.0), (10.0, 4.0)]}, [(5.0, "5")], (10.0, 4.0))
    assert plot.lines[0].points == [(56, 200), (620, 14)]
    assert [(tick.label, tick.at) for tick in plot.y_ticks] == [
        ("0", 200), ("1", 153.5), ("2", 107), ("3", 60.5), ("4", 14)
    ]  # fmt: skip
    assert plot.mark == (620, 14)
    rates = page._history([(60.0 * k, 2.0 * k) for k in range(300)])
    assert [tick.label for tick in rates.x_ticks] == ["00:02 UTC", "02:28 UTC", "04:54 UTC"]
    assert [tick.at for tick in rates.x_ticks] == [56, 338, 620]
    (line,) = rates.lines
    assert len({y for _, y in line.points}) == 1  # 120 an hour, always
    assert len(line.points) <= 100
    assert page._history([(0.0, 1.0), (60.0, 2.0)]) is None


def test_a_browser_runs_nothing_of_the_data_and_refreshes_the_page(client, chromium):
    address = f"http://127.0.0.1:{client.port}/"
    chromium.open(address)
    assert chromium.complaints == []  # of the content security policy, too
    assert chromium.value("document.title") == "ephemeral-crawl: 7 sources"
    assert "<img src=x onerror=" in chromium.value("document.body.innerText")
    loaded = "performance.getEntriesByType('resource').map((x) => x.name)"
    assert chromium.value(loaded) == []  # nothing else is asked for
    chromium.value("document.querySelector('#source').value = 'half a na'")
    assert client.post("add", {"source": "https://later.example/"}).status == 200
    chromium.value("refresh()")
    chromium.until("document.title == 'ephemeral-crawl: 8 sources'")
    assert chromium.value("document.querySelector('#source').value") == "half a na"
    assert chromium.value(loaded) == [address]
    assert chromium.value("document.querySelector('#stale').hidden")
    assert client.post("remove", {"source": "https://later.example/"}).status == 200


@pytest.mark.parametrize("path", ["/", "/?source=https%3A%2F%2Fe2.example%2Ffeed"])
def test_links_hold_below_a_path_of_a_proxy(client, path):
    text = client.get(path).text
    assert 'href="metrics"' in text
    assert not re.findall("""(?:href|src|action)="/|fetch."/""", text)


def test_a_search_in_a_browser_leads_to_the_explanation(client, chromium):
    chromium.open(f"http://127.0.0.1:{client.port}/")
    chromium.value("document.querySelector('#source').value = 'e2.'")
    chromium.value("document.querySelector('form button').click()")
    chromium.until("document.querySelector('#found')")
    chromium.value("document.querySelector('#found ~ ul a').click()")
    chromium.until("document.querySelector('#why')")
    assert "its index is" in chromium.value("document.querySelector('.why').innerText")


@pytest.mark.parametrize("width", [400, 1300])
@pytest.mark.parametrize("path", ["/", "/?source=https%3A%2F%2Fe2.example%2Ffeed"])
def test_the_page_is_not_wider_than_the_screen(client, chromium, path, width):
    chromium.open(f"http://127.0.0.1:{client.port}{path}", width)
    assert chromium.value("innerWidth") == width
    assert chromium.value("document.documentElement.scrollWidth") <= width
    wide = (
        "[...document.querySelectorAll('.scroll')].filter((x) => x.scrollWidth > x.clientWidth + 1)"
    )
    assert chromium.value(f"{wide}.every((x) => x.classList.contains('over'))")  # and say so
    assert chromium.complaints == []


def test_a_browser_says_when_the_server_is_gone(chromium):
    with running(Scheduler(":memory:", budget="60/h")) as short_lived:
        chromium.open(f"http://127.0.0.1:{short_lived.port}/")
        assert "There are no sources yet" in chromium.value("document.body.innerText")
    chromium.value("refresh()")
    chromium.until("!document.querySelector('#stale').hidden")
