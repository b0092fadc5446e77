"""Draws the pictures of the README and of the start page: `python docs/pictures.py`.

`front-page.svg` is drawn from the record `results/hacker-news-replay/unseen/records.csv`, and
`crawl.png` by the environment's own renderer.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import gymnasium as gym
import matplotlib as mpl
import numpy as np
from PIL import Image

import crawl_env  # noqa: F401 - registers the environment
from agents import Whittle
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.results import ROOT, read_csv

RECORD = ROOT / "results" / "hacker-news-replay" / "unseen" / "records.csv"
EXAMPLE = ROOT / "ephemeral_crawl" / "data" / "example.csv"
IMAGES = Path(__file__).parent / "images"

SHOWN = {  # the record's names of the policies, and those of the picture
    "whittle": "Whittle index policy",
    "nutch": "Apache Nutch's adaptive intervals",
    "miniflux": "Miniflux's entry frequency",
    "random": "random",
}
BUDGET = 10.0  # crawls per hour, at which the picture compares two policies


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
            color=plots.colour(agent),
            linewidth=3 if first else 1.8,
            label=label,
        )
        axes.annotate(
            label,
            (budgets[-1], 100 * shares[-1]),
            xytext=(9, {"nutch": 5, "miniflux": -7}.get(agent, 0)),
            textcoords="offset points",
            va="center",
            color=plots.colour(agent),
            fontweight="bold" if first else "normal",
        )
    whittle, nutch = of["whittle"], of["nutch"]
    enough = np.interp(nutch[BUDGET], list(whittle.values()), list(whittle))
    axes.annotate(
        "",
        (enough, 100 * nutch[BUDGET]),
        (BUDGET, 100 * nutch[BUDGET]),
        arrowprops={"arrowstyle": "->", "color": "#555555"},
    )
    axes.text(
        8.1,
        100 * nutch[BUDGET] + 0.8,
        f"{1 - enough / BUDGET:.0%} fewer\nfetches",
        ha="center",
        va="bottom",
        fontsize=9,
        color="#555555",
    )
    for of_policy, above in ((whittle, 3.0), (nutch, -6.5)):
        axes.text(
            BUDGET + (0.0 if above > 0 else 0.6),
            100 * of_policy[BUDGET] + above,
            f"{of_policy[BUDGET]:.0%}",
            ha="center",
            fontweight="bold",
        )
    axes.set(
        xlabel="fetches per hour, of 105 sites",
        ylabel="votes collected, %",
        xlim=(0, 31),
        ylim=(0, 72),
        xticks=sorted(whittle),
        title="Four months of the Hacker News front page, replayed for every policy",
    )
    figure.savefig(path, metadata={"Date": None, "Creator": None}, facecolor="white")


def crawl(path: Path, steps: int = 120) -> None:
    """Draw the environment's window after some steps of the Whittle policy."""
    env = gym.make(
        "EphemeralCrawl-v0",
        sources=str(EXAMPLE),
        budget=4,
        arrivals="poisson",
        observed=False,
        render_mode="rgb_array",
    )
    agent, state = Whittle(env), None
    observation, _ = env.reset(seed=0)
    for _ in range(steps):
        action, state = agent.predict(observation, state)
        observation, *_ = env.step(action)
    Image.fromarray(np.asarray(env.render(), dtype=np.uint8)).save(path, optimize=True)


if __name__ == "__main__":
    mpl.rcParams["svg.hashsalt"] = "ephemeral-crawl"
    IMAGES.mkdir(exist_ok=True)
    front_page(IMAGES / "front-page.svg")
    crawl(IMAGES / "crawl.png")
