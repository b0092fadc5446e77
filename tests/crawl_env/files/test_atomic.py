"""A file appears whole or not at all."""

import os
import signal
import threading

import pytest

from crawl_env.files.atomic import atomic_file, write_bytes, write_text

SIZE = 1 << 18


def test_the_file_appears_with_the_permissions_of_a_new_file_and_nothing_else_stays(tmp_path):
    path = tmp_path / ("n" * 250 + ".txt")  # as long as a name may be
    before = os.umask(0o027)
    try:
        write_text(path, "one\r\ntwö")
        with atomic_file(path) as new:
            new.chmod(0o600)
            new.write_bytes(path.read_bytes() + b"!")
    finally:
        os.umask(before)
    assert path.read_bytes() == "one\r\ntwö!".encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    write_bytes(path, b"old")
    with pytest.raises(KeyboardInterrupt):
        interrupted(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def interrupted(path):
    with atomic_file(path) as new:
        new.write_bytes(b"half of the n")
        raise KeyboardInterrupt


def test_a_link_stays_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_missing_folders_and_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"create it first.*missing'"):
        write_bytes(tmp_path / "missing" / "file", b"")
    with pytest.raises(IsADirectoryError, match="give the path of a file"):
        write_bytes(tmp_path, b"")


def test_errors_of_the_disk_name_the_file(tmp_path):
    with pytest.raises(OSError, match=r"full.*/file'"), atomic_file(tmp_path / "file"):
        raise OSError(28, "the disk is full")  # by a write, which knows no name
    with pytest.raises(OSError, match="/file'"), atomic_file(tmp_path / "file") as new:
        raise OSError(28, "the disk is full", str(new))
    with pytest.raises(OSError, match="/other'"), atomic_file(tmp_path / "file"):
        raise OSError(28, "the disk is full", "/other")


def test_writers_in_two_threads_have_files_of_their_own(tmp_path):
    path = tmp_path / "file"
    with atomic_file(path) as mine:
        mine.write_bytes(b"mine")
        other = threading.Thread(target=write_bytes, args=(path, b"theirs"))
        other.start()
        other.join()
        assert path.read_bytes() == b"theirs"
    assert path.read_bytes() == b"mine"


def write_for_ever(letter, path):
    while True:
        with atomic_file(path) as new, new.open("wb") as file:
            for _ in range(SIZE // 4096):
                file.write(letter * 4096)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_concurrent_processes_killed_while_writing_leave_a_whole_file(tmp_path):
    path = tmp_path / "file"
    writers = []
    for letter in (b"a", b"b"):
        if (child := os.fork()) == 0:
            try:
                write_for_ever(letter, path)
            finally:
                os._exit(1)
        writers.append(child)
    try:
        seen = set()
        for _ in range(10_000):  # until both have been seen, whole each time
            if path.exists():
                content = path.read_bytes()
                assert len(content) == SIZE
                assert content in (content[:1] * SIZE,)
                seen.add(content[:1])
            if len(seen) == 2:
                break
    finally:
        for writer in writers:
            os.kill(writer, signal.SIGKILL)
            os.waitpid(writer, 0)
    assert seen == {b"a", b"b"}
    assert path.read_bytes() in (b"a" * SIZE, b"b" * SIZE)
    write_bytes(path, b"after")  # what the killed ones left is in nobody's way
    assert path.read_bytes() == b"after"
    assert all(x == path or x.name.startswith(".") for x in tmp_path.iterdir())
