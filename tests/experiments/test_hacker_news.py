"""The reader of the recorded front page, on a small history made here."""

import json
import subprocess

import pytest

from crawl_env import ItemLog
from experiments.hacker_news import HackerNews

MIDNIGHT = 1_604_707_200  # 2020-11-07T00:00:00Z


def entry(number, votes, url):
    return {
        "title": f"Story {number}",
        "url": url,
        "upvotes": votes,
        "author": "somebody",
        "comments": None,
        "link": f"https://news.ycombinator.com/item?id={number}",
    }


ADVERTISEMENT = {"title": "A job", "url": "https://www.ycombinator.com/companies/x/jobs"}
A, ASK, OLD = "https://www.a.org/page?x=1", "item?id=2", "https://old.example/"
PAGES = [
    (0.5, json.dumps([entry(9, 100, OLD), ADVERTISEMENT])),
    (1.0, json.dumps([entry(9, 120, OLD), entry(1, 10, A)])),
    (2.0, json.dumps([entry(1, 30, A), entry(2, 5, ASK), ADVERTISEMENT])),
    (2.5, '[{"title": "cut o'),
    (3.0, json.dumps([entry(1, 29, A), entry(2, 5, ASK)])),
    (5.0, json.dumps([entry(1, 50, A), entry(3, 1, "https://a.org/other")])),
    (26.0, json.dumps([entry(3, 5, "https://a.org/other")])),
]


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "hn-history"
    folder.mkdir()

    def git(*words, hour=0.0):
        stamp = f"{MIDNIGHT + int(hour * 3600)} +0000"
        subprocess.run(
            ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words],
            cwd=folder,
            check=True,
            capture_output=True,
            env={"GIT_COMMITTER_DATE": stamp, "GIT_AUTHOR_DATE": stamp, "PATH": "/usr/bin:/bin"},
        )

    git("init")
    for hour, page in PAGES:
        (folder / "hn.json").write_text(page, encoding="utf-8")
        git("add", "hn.json")
        git("commit", "-m", "Latest data", hour=hour)
    return folder


def read(folder):
    return ItemLog.from_csv(folder / "items.csv.gz", folder / "curves.csv.gz", start=0, end=48)


def test_snapshots_become_items_and_curves(checkout, tmp_path, capsys):
    HackerNews(history=checkout, min_items=1, out=tmp_path / "out").run()
    log = read(tmp_path / "out")
    assert [log.names[i] for i in log.source] == ["a.org", "news.ycombinator.com", "a.org"]
    assert log.published.tolist() == [1.0, 2.0, 5.0]
    assert log.utility.tolist() == [40.0, 0.0, 4.0]
    assert log.curves.first.tolist() == [0, 4, 4, 6]
    assert log.curves.age.tolist() == [0, 1, 2, 4, 0, 21]
    assert log.curves.remaining.tolist() == [1, 0.5, 0.5, 0, 1, 0]
    said = capsys.readouterr().out
    assert "7 snapshots, 1 of them unreadable; 2 entries without votes" in said
    assert "1 items on the page from the start" in said
    assert "time 0 is 2020-11-07T00:00:00Z, the log covers 0.5000 to 26.0000 hours" in said


def test_rare_sites_and_other_days_are_left_out(checkout, tmp_path, capsys):
    HackerNews(history=checkout, min_items=2, out=tmp_path / "out").run()
    assert read(tmp_path / "out").names == ("a.org",)
    assert "1 items of 1 sites with fewer than 2" in capsys.readouterr().out
    HackerNews(history=checkout, min_items=1, until="2020-11-08", out=tmp_path / "out").run()
    assert read(tmp_path / "out").utility.tolist() == [40.0, 0.0, 0.0]


def test_what_is_wrong_is_said(checkout, tmp_path):
    with pytest.raises(ValueError, match="git clone https"):
        HackerNews(history=tmp_path, out=tmp_path / "out").run()
    with pytest.raises(ValueError, match="0 snapshots between --since and --until"):
        HackerNews(history=checkout, since="2021-01-01", out=tmp_path / "out").run()
    with pytest.raises(ValueError, match="--since is 'soon'; give a day"):
        HackerNews(history=checkout, since="soon", out=tmp_path / "out").run()
    with pytest.raises(ValueError, match=r"no site has 25 items.*--min-items"):
        HackerNews(history=checkout, out=tmp_path / "out").run()
    assert not (tmp_path / "out").exists()
