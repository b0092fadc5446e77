"""Threads around compiled functions: results, exceptions, nesting, forks, and their number."""

import multiprocessing
import os
import threading
import time

import numpy as np
import pytest

from crawl_env import Arrivals, Jumps, Sources, threads
from crawl_env.content import process
from crawl_env.content.names import make_arrivals
from crawl_env.content.world import World


@pytest.fixture(params=[1, 2, 3])
def number(request, monkeypatch):
    """Use that many threads, whatever the machine has."""
    monkeypatch.setattr(threads, "_threads", threads._Threads())
    monkeypatch.setattr(threads, "_allowed", lambda: request.param)
    yield request.param
    if threads._threads.pool is not None:
        threads._threads.pool.shutdown()


def test_every_call_is_made_once(number):
    for n in (0, 1, 2, 50):
        calls = np.zeros(n, dtype=int)

        def call(i, calls=calls):
            calls[i] += 1

        threads.each(call, n)
        assert (calls == 1).all()


def test_calls_are_made_at_the_same_time(number):
    together = threading.Barrier(number)
    threads.each(lambda _: together.wait(10) and None, number)


@pytest.mark.parametrize("error", [ValueError, IndexError, KeyboardInterrupt])
def test_an_exception_ends_all_calls_and_is_raised(number, error):
    begun = []
    active = threading.Semaphore(number)

    def fail(i):
        assert active.acquire(blocking=False)
        begun.append(i)
        try:
            if i == 3:
                raise error("three")
            time.sleep(0.001)
        finally:
            active.release()

    with pytest.raises(error, match="three"):
        threads.each(fail, 1000)
    assert len(begun) < 1000
    assert all(active.acquire(blocking=False) for _ in range(number))  # none is under way
    done = []
    threads.each(done.append, 4)  # and later calls work
    assert sorted(done) == [0, 1, 2, 3]


def test_calls_may_be_nested(number):
    done = []
    threads.each(lambda i: threads.each(lambda j: done.append(10 * i + j), 3), 4)
    assert sorted(done) == [10 * i + j for i in range(4) for j in range(3)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(number):
    threads.each(lambda _: None, 8)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        done = []
        threads.each(done.append, 8)
        os.write(write, bytes([sum(done)]))
        os._exit(0)
    os.close(write)
    assert os.read(read, 1) == bytes([28])
    os.close(read)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(("setting", "most"), [("1", 1), ("2,4", 2), ("0", 99), ("many", 99)])
def test_the_number_follows_the_setting(setting, most, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(7), raising=False)
    assert threads._allowed() == min(7, most)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    assert threads._allowed() == 1


@pytest.mark.parametrize("name", ["poisson", "poisson-lognormal", "poisson-drift", "poisson-items"])
def test_content_does_not_depend_on_the_number_of_threads(name, monkeypatch):
    monkeypatch.setattr(process, "BLOCK", 40)  # 130 cells are 4 blocks
    fleet = Sources.random(130, seed=1)
    worlds = []
    for number in (1, 2, 3):
        monkeypatch.setattr(threads, "_threads", threads._Threads())
        monkeypatch.setattr(threads, "_allowed", lambda number=number: number)
        world, rng = World(fleet, make_arrivals(name)), np.random.default_rng(0)
        world.start(np.ones((1, 130)), rng)
        for _ in range(5):
            world.advance(rng)
        worlds.append((world.value.copy(), rng.random()))
    for value, following in worlds[1:]:
        assert np.array_equal(value, worlds[0][0])
        assert following == worlds[0][1]
    assert worlds[0][0].min() >= 0
    blocks = worlds[0][0].reshape(-1)[:132:33]
    assert np.unique(blocks).size == blocks.size  # blocks have different random numbers


class Counting:
    """A distribution with a state, which several threads must not change at the same time."""

    second_moment = 1.0
    calls = 0

    def sample(self, rng, n):
        self.calls += 1
        assert threading.current_thread() is threading.main_thread()
        return np.ones(n)


@pytest.mark.parametrize("number", [3], indirect=True)
@pytest.mark.parametrize("place", ["utility", "rate"])
def test_what_is_not_of_this_package_is_called_by_one_thread(place, number, monkeypatch):
    monkeypatch.setattr(process, "BLOCK", 40)
    own = Counting()
    arrivals = Arrivals(rate=Jumps(1.0, own)) if place == "rate" else Arrivals(utility=own)
    world, rng = World(Sources.random(130, seed=1), arrivals), np.random.default_rng(0)
    world.start(np.ones((1, 130)), rng)
    before = own.calls
    for _ in range(20):
        world.advance(rng)
    assert own.calls > before + 40


def test_content_of_several_blocks_can_be_restored_from_the_state_of_one_generator(monkeypatch):
    monkeypatch.setattr(process, "BLOCK", 40)
    world, rng = (
        World(Sources.random(130, seed=1), make_arrivals("poisson")),
        np.random.default_rng(0),
    )
    world.start(np.ones((1, 130)), rng)
    saved, numbers = world.get_state(), rng.bit_generator.state
    world.advance(rng)
    first = world.value.copy()
    world.set_state(saved)
    rng.bit_generator.state = numbers
    world.advance(rng)
    assert np.array_equal(world.value, first)
