"""What the commands refuse, in the user's terms, before they write anything."""

import os
import re
import socket

import pytest

from ephemeral_crawl.example import Example
from tests.ephemeral_crawl.commands import FLEET, LOG, run

TABLE1 = "evaluate --sources table1 --budget 1"
SIGNALS = "evaluate --quick --budget 2 --sources table1"
QUEUE = "evaluate --budget 4 --sources FLEET"
REPLAY = "evaluate --items LOG --budget 2"
PINGS = "replay --items example/log.csv --half-life 7h --budget 2 --quick --signals"
BACKTEST = "backtest --items example/log.csv --jobs 1"
SCHEDULE = "schedule --items example/log.csv"


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """A folder with the files of the example, and logs of pings that do not fit."""
    folder = tmp_path_factory.mktemp("example")
    Example(out=folder / "example").run()
    for name, row in (
        ("strange", "nobody,2026-03-03T00:00:00Z"),
        ("numbers", "city-news,3"),
        ("late", "city-news,2027-03-03T00:00:00Z"),
    ):
        (folder / f"{name}.csv").write_text(f"source,time\n{row}\n", encoding="utf-8")
    one = "source,published\na,2026-01-01\n"
    (folder / "one.csv").write_text(one, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("evaluate --budget 2", "give --sources fleet.csv (or a preset), or --items"),
        ("evaluate --sources missing.csv --budget 1", "missing.csv: No such file"),
        ("evaluate --sources tabel1 --budget 1", "did you mean 'table1'"),
        ("evaluate --sources table1", "give --budget 5"),
        ("evaluate --sources table1 --budget 0", "budget is 0"),
        ("evaluate --sources table1 --budget 1,x", "'x', which is not a number"),
        ("evaluate --sources table1 --budget 0.5", "nothing can ever be crawled"),
        (f"{TABLE1} --arrivals poison", "'poisson'"),
        (f"{TABLE1} --seeds 1", "--seeds is 1"),
        (f"{TABLE1} --seed -1", "--seed is -1; it must be a whole number of at least 0"),
        ("crawl feeds.txt --budget 20/h", "a table if its first line is the word source"),
        ("example --seed -1", "--seed is -1"),
        ("fit --items example/log.csv --half-life 7h --out f.csv --seed -1", "--seed is -1"),
        (f"{TABLE1} --steps 0", "--steps is 0"),
        (f"{TABLE1} --agents wittle", "'whittle'"),
        (f"{TABLE1} --run-on none", "unknown place to run"),
        (f"{SIGNALS} --recall 1.5", "recall is 1.5"),
        (f"{SIGNALS} --precision .5", "give --recall"),
        (f"{SIGNALS} --signals example/pings.csv", "give --items"),
        (f"{SIGNALS} --recall .5 --precision 0", "precision is 0"),
        (f"{SIGNALS} --recall .5 --delay -1", "delay is -1"),
        (f"{SIGNALS} --recall .5 --observed", "--observed is given with signals"),
        (f"{SIGNALS} --recall .5 --arrivals deterministic", "poisson-items"),
        (f"{QUEUE} --engine-capacity 3", "give --engine-rate, the items that it indexes per step"),
        (f"{QUEUE} --engine-rate -1", "--engine-rate is -1.0; it must be positive"),
        (f"{QUEUE} --engine-rate inf", "leave the option out"),
        (f"{QUEUE} --engine-rate 1 --engine-capacity -1", "--engine-capacity is -1"),
        (f"{QUEUE} --engine-rate 1 --engine-threshold nan", "--engine-threshold is nan"),
        (f"{QUEUE} --engine-rate 1 --arrivals deterministic", "single items are needed"),
        ("evaluate --items missing.csv --half-life 1h --budget 2", "missing.csv: No such file"),
        (REPLAY, "neither of --half-life and --curves"),
        (f"{REPLAY} --half-life 7h --train-until 9999", "9999 hours, but the log covers"),
        (f"{REPLAY} --half-life 7h --train-until -5", "give a time within it"),
        (f"{REPLAY} --half-life 7h --train-until 2024-01-01", "the log's times are numbers"),
        (f"{REPLAY} --half-life 0s", "--half-life is"),
        (f"{REPLAY} --half-life 7h --block -1", "--block is -1"),
        (f"{REPLAY} --half-life 7h --budget 0.5", "nothing can ever be crawled"),
        (f"{REPLAY} --half-life 7h --steps 0", "--steps is 0"),
        (f"{REPLAY} --half-life 7h --period 1e-6", "at most 10,000,000 are replayed"),
        (f"{REPLAY} --half-life 7h --agents wittle", "'whittle'"),
        (f"{REPLAY} --half-life 7h --unit fortnight", "fortnight"),
        (f"{REPLAY} --sources table1", "--sources lacks 20 sources of the log, with 2,134 items"),
        (f"{REPLAY} --sources table1 --half-life 1h", "--half-life was given with --sources"),
        (f"{REPLAY} --curves none.csv", "none.csv: No such file"),
        (f"{PINGS} strange.csv", "source that the log"),
        (f"{PINGS} numbers.csv", "are numbers"),
        (f"{PINGS} late.csv", "no ping is within"),
        (f"{BACKTEST} --budget 1/h --present ttrss", "ttrss"),
        (f"{BACKTEST} --budget 1000000/s", "fetches in the time that is played; take a smaller"),
        (f"{BACKTEST} --budget 1/h --begin 1", "below 1"),
        (f"{BACKTEST} --budget 1/h --listed -1", "at least 0"),
        (f"{BACKTEST} --budget 1/90d", "pays for no fetch"),
        (f"{BACKTEST} --budget many", "such as '20/h'"),
        (f"{BACKTEST} --budget 1/h --half-life 0h", "half-life"),
        ("crawl example/log.csv --budget 60", "error: --budget is '60'; give a rate"),
        (
            "crawl example/log.csv --budget 60/h --half-life=3",
            "error: --half-life is '3', without a unit; write 3s,",
        ),
        ("crawl example/log.csv --budget 60/h --max-interval 3", "error: --max-interval is '3'"),
        (f"{SCHEDULE} --budget 3/h", "neither of --half-life and --curves"),
        (f"{SCHEDULE} --budget 3/h --half-life 3h --present nutch", "replay"),
        (f"{SCHEDULE} --budget 0/h --half-life 3h", "budget"),
        (
            f"{SCHEDULE} --budget 1/30d --half-life 3h --max-interval 1h",
            "takes 24 fetches an hour",
        ),
        (
            "schedule --items one.csv --budget 1/h --half-life 3h",
            "Of all commands only `fit` takes this one, if it is told the time that it covers",
        ),
    ],
)
def test_bad_input_is_said_in_the_users_terms(
    words, message, example, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(example)
    given = words.replace("FLEET", str(FLEET)).replace("LOG", str(LOG))
    with pytest.raises(SystemExit, match=re.escape(message)):
        run(given, "--out", str(tmp_path / "out"))
    assert not list(tmp_path.iterdir()), "nothing is written for a refused request"
    assert not capsys.readouterr().out, "no report begins"


@pytest.mark.parametrize(
    "words",
    [
        "fit --items loop.csv --half-life 7h --out fleet.csv",
        "crawl --store loop.csv --dry-run",
        "crawl --store pipe --out loop.csv",
        "sources --store loop.csv --budget 1/h",
        "sources --store pipe --budget 1/h",
        "reshard --stores loop.csv crawl.db",
    ],
)
def test_loops_of_links_and_pipes_are_refused(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink("loop.csv", "loop.csv")
    os.mkfifo("pipe")
    with pytest.raises(SystemExit, match=r"loop.csv.*Too many levels|pipe is a pipe"):
        run(words)
    assert not {file.name for file in tmp_path.iterdir()} - {"loop.csv", "pipe"}


@pytest.mark.parametrize(
    "words",
    [
        "backtest --items none.csv --budget 3/h",
        "evaluate --sources none.csv --budget 3 --out a/b",
        "fit --items none.csv --half-life 1h --out a/fleet.csv",
        "replay --items none.csv --half-life 1h --budget 3",
        "schedule --items none.csv --budget 3/h --half-life 3h",
    ],
)
def test_a_command_that_is_refused_leaves_no_folder_behind(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"none\.csv: No such file"):
        run(words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "crawl feeds.csv --listen 127.0.0.1:PORT --public-url http://a.example/",
            "cannot listen on",
        ),
        (
            "crawl feeds.csv --listen a..b:80 --public-url http://a.example/",
            "cannot listen on a..b:80: ",
        ),
        ("serve --token-file token --port PORT", "cannot listen on 127.0.0.1 port"),
        ("serve --token-file token --port 0 --public-url ftp://a", "--public-url is 'ftp://a'"),
    ],
)
def test_a_start_that_is_refused_leaves_no_store_behind(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "feeds.csv").write_text("source\nhttp://a.example/\n")
    with socket.create_server(("127.0.0.1", 0)) as busy:
        given = words.replace("PORT", str(busy.getsockname()[1]))
        with pytest.raises(SystemExit, match=message):
            run(f"{given} --budget 1/h")
    assert [file.name for file in tmp_path.iterdir()] == ["feeds.csv"]


@pytest.mark.parametrize("what", ["a file", "a folder of others", "the folder of the input"])
def test_results_never_replace_what_is_not_theirs(what, tmp_path):
    out, fleet = tmp_path / "out", FLEET
    if what == "a file":
        out.write_text("precious", encoding="utf-8")
    else:
        out.mkdir()
        fleet = out / ("sources.csv" if what == "the folder of the input" else "thesis.csv")
        fleet.write_bytes(FLEET.read_bytes())
    before = sorted(p.name for p in tmp_path.rglob("*"))
    with pytest.raises(SystemExit, match="--out out"):
        run(f"evaluate --sources {fleet} --budget 4 --out {out}")
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


def test_another_question_does_not_replace_the_report(tmp_path):
    out = tmp_path / "out"
    words = f"evaluate --sources {FLEET} --steps 5 --seeds 3 --agents whittle --quick --out {out}"
    run(f"{words} --budget 4")
    first = (out / "records.csv").read_bytes()
    with pytest.raises(SystemExit, match=r"another question \(--budget 4\).*--out.*--replace"):
        run(f"{words} --budget 5")
    assert (out / "records.csv").read_bytes() == first
    run(f"{words} --budget 4 --jobs 1")
    run(f"{words} --budget 5 --replace")
    assert (out / "records.csv").read_bytes() != first
