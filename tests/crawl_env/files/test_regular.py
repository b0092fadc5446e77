"""Whatever is given in place of a file is refused in a sentence that names it."""

import gzip
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from agents.learning import storage
from agents.scheduling import FleetScheduler
from crawl_env import ItemLog, PingLog, Sources
from crawl_env.files.atomic import write_text
from crawl_env.files.batches import count_rows
from crawl_env.fleet.columns import FleetColumns
from crawl_env.log.decay_curves import DecayCurves
from ephemeral_crawl.crawl.exchange import import_csv, import_fleet, import_log, import_opml
from ephemeral_crawl.crawl.opml import read_opml
from ephemeral_crawl.live import Scheduler

TABLES = (".csv", ".csv.gz", ".parquet")
FLEET = FleetColumns([1.0, 2.0], 1.0, 0.5)


def into_scheduler(read):
    def into(path):
        with Scheduler(":memory:", budget="20/h") as scheduler:
            return read(scheduler, path)

    return into


# Readers, and the names of files that each reads.
READERS = {
    "fleet": (Sources.from_csv, TABLES),
    "large fleet": (FleetColumns.from_file, (".parquet", ".arrow", ".feather")),
    "rows": (count_rows, (".parquet", ".arrow")),
    "items": (ItemLog.from_csv, TABLES),
    "pings": (lambda path: PingLog.from_csv(path), TABLES),
    "curves": (lambda path: DecayCurves.from_csv(path, ["a"]), TABLES),
    "subscriptions": (read_opml, (".opml",)),
    "import of OPML": (into_scheduler(import_opml), (".opml",)),
    "import of sources": (into_scheduler(import_csv), (".csv", ".csv.gz")),
    "import of a log": (into_scheduler(import_log), TABLES),
    "import of a fleet": (into_scheduler(import_fleet), TABLES),
    "scheduler": (lambda path: FleetScheduler.load(path, FLEET), (".npz",)),
    "agent": (storage.load, (".safetensors",)),
}


def link(path, to):
    path.symlink_to(to)


def listen(path):
    before = Path.cwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def content(data, packed=True):
    return lambda path: path.write_bytes(
        gzip.compress(data) if packed and path.suffix == ".gz" else data
    )


WIDE = ",".join(f"column-{i}" for i in range(10**5)).encode()
STRANGE = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "socket": listen,
    "device": lambda path: link(path, Path("/dev/zero")),
    "loop of links": lambda path: link(path, path),
    "empty": content(b""),
    "empty, not packed": content(b"", packed=False),
    "binary": content(bytes(range(256)) * 9),
    "nulls": content(bytes(1000)),
    "no header": content(b"a,1,1,1\nb,2,2,2\n"),
    "wide": content(WIDE + b"\n" + b"1," * 99_999 + b"1\n"),
    "one wide name": content(b"x" * 100_000 + b"\n1\n"),
    "UTF-16": content("source,arrival_rate\na,1\n".encode("utf-16")),
    "cut off": content(gzip.compress(b"source\n" * 1000)[:-20], packed=False),
    "no permission": lambda path: path.touch(0),
}


@pytest.mark.skipif(os.name != "posix", reason="pipes, devices and rights are those of POSIX")
@pytest.mark.parametrize("reader", READERS)
def test_strange_files_are_refused_by_name(reader, tmp_path):
    pytest.importorskip("pyarrow")
    read, suffixes = READERS[reader]
    for strange, make in STRANGE.items():
        for suffix in suffixes:
            path = tmp_path / f"{strange}{suffix}"
            make(path)
            with pytest.raises((ValueError, PermissionError)) as refused:
                read(path)
            text = str(refused.value)
            assert path.name in text, text
            assert len(text) < 500 + len(str(path)), (strange, suffix, text)
            assert "\n" not in text, text
            if strange in ("folder", "pipe", "socket", "device"):
                assert f"is a {strange}; give the path of a file" in text, text


@pytest.mark.skipif(os.name != "posix", reason="devices are those of POSIX")
def test_pipes_and_devices_are_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null")):
        with pytest.raises(ValueError, match=r"(pipe is a pipe|/dev/null is a device); give"):
            write_text(path, "text")
    assert pipe.is_fifo()


def test_names_of_sources_do_not_fill_the_message(tmp_path):
    long = "n" * 100_000
    texts = []
    for rows in (f"{long},-1,1,1\n", f"{long},1,1,1\n" * 2, f"a,{long},1,1\n", f"a,1,1,{long},1\n"):
        path = tmp_path / "f.csv"
        path.write_text("source,arrival_rate,mean_utility,decay_rate\n" + rows)
        with suppress(OSError), pytest.raises(ValueError, match=r"f\.csv, row [23]") as refused:
            Sources.from_csv(path)
        texts.append(str(refused.value))
    log = ItemLog([f"{long}-{i}" for i in range(30)], [0], [1.0], [1.0])
    with pytest.raises(ValueError, match=r"unknown source 'm'.*\.\.\. and 29 others") as unknown:
        log.select(["m"])
    assert max(map(len, [*texts, str(unknown.value)])) < 500 + len(str(path))
