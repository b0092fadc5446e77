"""Pictures of a crawl: what they show, and that showing them changes nothing."""

import sys
from copy import deepcopy
from unittest.mock import Mock

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import DependencyNotInstalled

from crawl_env import CrawlEnv, Sources
from crawl_env.rendering import Frame

# pygame's own import uses pkg_resources, where setuptools is installed.
pytestmark = [
    pytest.mark.filterwarnings("ignore:pkg_resources is deprecated"),
    pytest.mark.filterwarnings("ignore:Deprecated call to `pkg_resources"),
]

HIDDEN = {"arrivals": "poisson", "observed": False, "features": ("value", "age")}
NAMES = ("alpha", "beta", "gamma", "delta")
NAMED = Sources(250.0, [1.0, 0.7, 0.2, 0.08], [0.7, 0.35, 0.7, 0.21], names=NAMES)
FIRST = np.array([1, 0, 0, 0], dtype=np.float32)
LAST = np.array([0, 0, 0, 1], dtype=np.float32)


@pytest.fixture(autouse=True)
def dummy_display(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


def started(render_mode, **arguments):
    env = gym.make("EphemeralCrawl-v0", render_mode=render_mode, **arguments)
    env.reset(seed=0)
    return env


def frame_of(env):
    inner = env.unwrapped
    return Frame.of(inner._simulation, inner._elapsed, inner._rewards)


def fleet(n):
    return Sources.random(n, seed=1)


SIZES = [
    {},
    {"sources": NAMED, "start": "full"},  # never crawled
    {"sources": Sources(0.0, 1.0, [1.0, 2.0])},  # no items
    {"sources": "fleet-f", "budget_rule": "average"},
    {"sources": fleet(200), "budget": 10, **HIDDEN},
    {"sources": fleet(2000), "budget": 100},
    {"sources": lambda rng: Sources.random(30, rng)},
]


def test_picture_changes_with_a_step_and_does_not_alias():
    for arguments in SIZES:
        env = started("rgb_array", **arguments)
        before = picture(env)
        kept = before.copy()
        env.step(np.ones(env.action_space.shape or (), dtype=np.float32))
        after = picture(env)
        assert before.shape == after.shape == (480, 800, 3)
        assert before.dtype == after.dtype == np.uint8
        assert np.array_equal(before, kept)
        assert not np.array_equal(before, after)


def picture(env):
    image = env.render()
    assert isinstance(image, np.ndarray)
    return image


def test_crawled_source_is_orange():
    env = started("rgb_array")
    for action, side in ((FIRST, "left"), (LAST, "right")):
        env.step(action)
        bars = picture(env)[110:280].astype(int)  # above the table and under the legend
        orange = (bars[..., 0] - bars[..., 2] > 20).sum(axis=0)
        left, right = orange[:400].sum(), orange[400:].sum()
        assert (left > 0, right > 0) == (side == "left", side == "right")


def test_pictures_make_a_video(tmp_path, monkeypatch):
    """In front of a stand-in for MoviePy, which encodes them; without it Gymnasium says so."""
    env, clips = gym.make("EphemeralCrawl-v0", horizon=3, render_mode="rgb_array"), []
    monkeypatch.setitem(sys.modules, "moviepy", None)
    with pytest.raises(DependencyNotInstalled, match=r'run `pip install "gymnasium\[other\]"`'):
        gym.wrappers.RecordVideo(env, str(tmp_path / "none"))
    encoder = Mock()
    encoder.ImageSequenceClip = lambda frames, fps: clips.append((frames, fps)) or Mock()
    for name in ("moviepy", "moviepy.video", "moviepy.video.io"):
        monkeypatch.setitem(sys.modules, name, encoder)
    monkeypatch.setitem(sys.modules, "moviepy.video.io.ImageSequenceClip", encoder)
    video = gym.wrappers.RecordVideo(env, str(tmp_path / "videos"))
    video.reset(seed=0)
    for _ in range(3):
        video.step(FIRST)
    video.close()
    ((frames, fps),) = clips
    assert fps == env.metadata["render_fps"]
    assert [frame.shape for frame in frames] == [(480, 800, 3)] * 4
    assert not np.array_equal(frames[0], frames[-1])


def test_pictures_of_a_vector_env_show_their_rows():
    vec = gym.make_vec(
        "EphemeralCrawl-v0", num_envs=3, vectorization_mode="vector_entry_point",
        render_mode="rgb_array",
    )  # fmt: skip
    vec.reset(seed=0)
    vec.step(np.stack([FIRST, FIRST, LAST]))
    images = vec.render()
    assert [image.shape for image in images] == [(480, 800, 3)] * 3
    assert np.array_equal(images[0], images[1])
    assert not np.array_equal(images[0], images[2])


def test_window_can_be_closed_and_opened_again(monkeypatch):
    monkeypatch.setitem(CrawlEnv.metadata, "render_fps", 1000)
    env = started("human", sources=NAMED)
    import pygame

    env.step(FIRST)
    assert pygame.display.get_surface() is not None
    pygame.quit()  # as other environments do when they are closed
    env.step(FIRST)
    window = pygame.display.get_surface()
    assert window.get_size() == (800, 480)
    env.close()
    assert not pygame.display.get_init()
    env.close()


def test_text_names_every_source_with_its_numbers():
    env = started("ansi", sources=NAMED, start="full")
    env.step(FIRST)
    head, _, *lines = lines_of(env)
    assert "step 1" in head
    assert "mean reward 357.1" in head
    assert [line.split()[0] for line in lines] == list(NAMES)
    assert "● +357.1" in lines[0]
    assert "never" in lines[1]
    assert "500" in lines[1]


def lines_of(env):
    text = env.render()
    return str(text).split("\n")


def test_text_fits_a_terminal():
    for n, more in ((1, HIDDEN), (24, {}), (25, HIDDEN), (200, {}), (2000, HIDDEN)):
        names = [f"a-long-name-{i}.example.org" for i in range(n)]
        sources = Sources(5.0, np.geomspace(1e-7, 1e7, n), 0.1, names=names)
        env = started("ansi", sources=sources, budget=max(1, n // 4), **more)
        env.step(np.linspace(-1, 1, n, dtype=np.float32))
        lines = lines_of(env)
        assert len(lines) <= 30
        assert max(map(len, lines)) <= 100


def test_text_says_what_the_rest_is():
    env = started("ansi", sources=fleet(200), budget=60)
    env.step(np.arange(200, dtype=np.float32) / 200)
    lines = lines_of(env)
    shown = len(lines) - 3
    crawled = sum("●" in line for line in lines)
    assert f"… {200 - shown} more" in lines[-1]
    assert f"{60 - crawled} crawled, +" in lines[-1]


def test_frame_tells_belief_from_value():
    hidden = np.array([True, True, False, False])
    env = started(None, arrivals="poisson", observed=~hidden)
    env.step(FIRST)
    frame = frame_of(env)
    assert frame.belief is not None
    assert np.array_equal(frame.belief != frame.value, hidden)
    assert frame_of(started(None)).belief is None


def test_queue_is_shown():
    """Source 1 publishes 250 items per step."""
    engine = {"rate": 2, "capacity": 8, "threshold": 0.5}
    env, drawn = (started(mode, sources=NAMED, engine=engine) for mode in ("ansi", "rgb_array"))
    empty = picture(drawn)
    for one in (env, drawn):
        one.step(FIRST)
    line = lines_of(env)[1]
    assert line.startswith("queue          ████████████████████  8 of 8 waiting, 2 indexed, ")
    assert line.endswith(" lost")
    assert "refused" in line
    assert len(line) <= 100
    strip = (picture(drawn) != empty).any(axis=-1)[348:360, 80:780]  # a bar, and text behind it
    assert strip[:, :352].all()
    assert strip[:, 360:].any()
    other = started("ansi", sources=NAMED, engine={"rate": 1e6})
    assert lines_of(other)[1].split()[2:] == ["0", "waiting,", "0", "indexed"]
    other.step(FIRST)
    assert frame_of(other).queue is not None
    assert "0 waiting" in lines_of(other)[1]
    assert frame_of(started("ansi")).queue is None


def test_axis_does_not_jump():
    env = started(None, arrivals="poisson")
    scale = frame_of(env).scale
    env.step(FIRST)
    assert frame_of(env).scale == scale > 500


def test_rendering_does_not_change_the_run():
    modes = ("rgb_array", "ansi", None)
    pictured, written, plain = (started(mode, sources=NAMED, **HIDDEN) for mode in modes)
    for action in (FIRST, LAST, FIRST):
        pictured.render()
        written.render()
        observation = plain.step(action)[0]
        assert np.array_equal(pictured.step(action)[0], observation)
        assert np.array_equal(written.step(action)[0], observation)
    assert np.array_equal(picture(pictured.unwrapped), picture(deepcopy(pictured.unwrapped)))


def test_missing_pygame_is_named_with_its_remedy(monkeypatch):
    env = started("rgb_array")
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(gym.error.DependencyNotInstalled, match=r"extra .render.*\[render\]"):
        env.render()
    assert started("ansi").render()


def test_rendering_before_the_reset_is_refused():
    env = gym.make("EphemeralCrawl-v0", render_mode="ansi").unwrapped
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        env.render()
