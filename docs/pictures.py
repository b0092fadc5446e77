"""Draws the pictures of the README and of the pages: `python docs/pictures.py`.

`front-page.svg` is drawn from the record `results/hacker-news-replay/not-observed/records.csv`;
`episode.gif` is drawn by the environment's own renderer. The sections of the environment's
docstring are copied into its page, which is then complete when read as Markdown.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from pathlib import Path

import gymnasium as gym
import matplotlib as mpl
import numpy as np
from PIL import Image

import crawl_env
from agents import Whittle
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.results import ROOT, read_csv

RECORD = ROOT / "results" / "hacker-news-replay" / "not-observed" / "records.csv"
IMAGES = Path(__file__).parent / "images"
PAGE = Path(__file__).parent / "researchers" / "environment.md"

SHOWN = {  # the record's names of the policies, and those of the picture
    "whittle": "Whittle index policy",
    "adaptive-self-tuning": "learning while it crawls",
    "nutch": "Apache Nutch's adaptive intervals",
    "miniflux": "Miniflux's entry frequency",
    "random": "random",
}
DARKER = {"adaptive-self-tuning": plots.VIOLET}  # than in reports, since labels are written in it
# Points of the curves that have a label: policy, budget, and the place of the label in points.
LABELS = (("whittle", 5.0, -8, 9), ("whittle", 10.0, 0, 9), ("nutch", 10.0, 6, -17))


def fractions(record: Path) -> dict[str, dict[float, float]]:
    """Return the fraction of all recorded utility that each policy collected, by budget."""
    collected: defaultdict[tuple[str, float], float] = defaultdict(float)
    published: defaultdict[tuple[str, float], float] = defaultdict(float)
    for row in read_csv(record):
        key = row["agent"], float(row["budget"])
        collected[key] += float(row["reward"])
        published[key] += float(row["published"])
    found: defaultdict[str, dict[float, float]] = defaultdict(dict)
    for agent, budget in sorted(collected):
        found[agent][budget] = collected[agent, budget] / published[agent, budget]
    return found


def front_page(path: Path) -> None:
    """Draw the fraction of all votes that policies collect against the budget."""
    of = fractions(RECORD)
    figure, axes = plots.new(width=8.0, height=3.9)
    for agent, label in SHOWN.items():
        budgets, shares = np.array(list(of[agent].items())).T
        first = agent == "whittle"
        axes.plot(
            budgets,
            100 * shares,
            marker="o",
            color=DARKER.get(agent, plots.colour(agent)),
            linewidth=3 if first else 1.8,
            label=label,
        )
        axes.annotate(
            label,
            (budgets[-1], 100 * shares[-1]),
            xytext=(
                9,
                {"whittle": 6, "adaptive-self-tuning": -7, "nutch": 5, "miniflux": -7}.get(
                    agent, 0
                ),
            ),
            textcoords="offset points",
            va="center",
            color=DARKER.get(agent, plots.colour(agent)),
            fontweight="bold" if first else "normal",
        )
    for agent, budget, x, y in LABELS:
        axes.annotate(
            f"{of[agent][budget]:.0%}",
            (budget, 100 * of[agent][budget]),
            xytext=(x, y),
            textcoords="offset points",
            ha="center",
            fontweight="bold",
        )
    axes.set(
        xlabel="fetches per hour, of 105 sites",
        ylabel="votes collected, %",
        xlim=(0, 31),
        ylim=(0, 72),
        xticks=sorted(of["whittle"]),
        title="Four months of the Hacker News front page, replayed for every policy",
    )
    figure.savefig(path, metadata={"Date": None, "Creator": None}, facecolor="white")


def episode(path: Path, steps: int = 28) -> None:
    """Draw the first steps of an episode of the Whittle policy as an animation."""
    env = gym.make("EphemeralCrawl-v0", budget=2, arrivals="poisson", render_mode="rgb_array")
    agent = Whittle(env)
    observation, _ = env.reset(seed=0)
    frames: list[Image.Image] = []
    for _ in range(steps):
        observation, *_ = env.step(agent.predict(observation)[0])
        frame = Image.fromarray(np.asarray(env.render(), dtype=np.uint8))
        small = frame.resize((480, 480 * frame.height // frame.width))
        frames.append(
            small.quantize(palette=frames[0], dither=Image.Dither.NONE)
            if frames
            else small.quantize(24)
        )
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=400, loop=0)


def with_sections(text: str) -> str:
    """Return a page with the sections of the environment's docstring that it marks, as in
    `<!-- CrawlEnv: Rewards -->`, up to `<!-- end -->`."""
    docstring = inspect.cleandoc(crawl_env.CrawlEnv.__doc__ or "")
    found = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", docstring, re.M | re.S)
    sections = {title: body.partition("\nRaises:")[0].strip() for title, body in found}

    def section(match: re.Match[str]) -> str:
        body = sections[match[2]].replace("<", r"\<")  # no HTML: "recovering-<n>"
        return f"{match[1]}\n\n{body}\n\n<!-- end -->"

    return re.sub(r"(<!-- CrawlEnv: (.*?) -->).*?<!-- end -->", section, text, flags=re.S)


if __name__ == "__main__":
    mpl.rcParams["svg.hashsalt"] = "ephemeral-crawl"
    IMAGES.mkdir(exist_ok=True)
    front_page(IMAGES / "front-page.svg")
    episode(IMAGES / "episode.gif")
    PAGE.write_text(with_sections(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
