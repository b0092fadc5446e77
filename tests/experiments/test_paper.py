"""The paper command: its report holds the published numbers, and is written whole."""

import numpy as np
import pytest

from agents.theory.observed import ObservedArm
from crawl_env import Sources
from crawl_env.content.utility import Exponential
from ephemeral_crawl.core.results import read_csv
from experiments import paper
from experiments.paper import Paper


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("paper") / "report"
    Paper(out=out, seeds=4, steps=300).run()
    return out


@pytest.fixture(scope="module")
def numbers(folder):
    return {row["quantity"]: float(row["value"]) for row in read_csv(folder / "records.csv")}


@pytest.mark.parametrize(
    ("quantity", "published"),
    [
        ("crawling only source 1", 179.790963),
        ("whittle, long run, M=1", 260.389930),
        ("whittle, long run, M=2", 337.774550),
        ("whittle, long run, M=3", 372.410342),
        ("exact optimum, M=2", 337.774550),
        ("relaxed bound, M=2", 338.053940),
        ("retention of source 2", 0.7046881),
        ("inflow of source 4", 18.039596),
        ("ceiling of source 1", 357.142857),
        ("period, M=2", 7),
        ("frequency of source 2, M=2", 4 / 7),
        ("frequency of source 4, M=3", 1 / 4),
    ],
)
def test_records_hold_the_published_numbers(numbers, quantity, published):
    assert numbers[quantity] == pytest.approx(published, rel=1e-6)


def test_the_report_is_one_page_with_four_figures_and_every_correction(folder):
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg ") == 4
    for number in ("254.657611", "260.389930", "179.790963", ">4/7<"):
        assert number in page
    for correction in ("Above the ceiling", "not a long-run average", "is not exact"):
        assert correction in page
    assert not list(folder.parent.glob(".*"))


def test_the_literal_index_vanishes_above_the_ceiling_and_agrees_below():
    fleet = Sources.preset("table1")
    below, above = 0.5 * fleet.ceiling, 1.5 * fleet.ceiling
    from agents import whittle_index

    np.testing.assert_allclose(
        paper.literal_index(below, fleet), whittle_index(below, fleet), rtol=1e-10
    )
    np.testing.assert_array_equal(paper.literal_index(above, fleet), 0.0)


def test_the_short_average_starts_empty_and_counts_61_epochs():
    run = paper.crawl(61, start="empty")
    assert run.reward.mean() == pytest.approx(254.6576, abs=5e-5)


@pytest.mark.parametrize("items", [1.0, 250.0])
def test_the_arms_index_meets_the_closed_form_where_noise_is_small_and_differs_elsewhere(items):
    # Published distances from Theorem 1: .2 … .45 u* for ΛT ≤ 5, .06 u* at 250.
    fleet = Sources(items, 1.0, 0.2)
    gap = fleet.ceiling - ObservedArm(fleet, np.array([True]), Exponential()).index(fleet.ceiling)
    share = gap[0] / fleet.ceiling[0]
    assert (0.2 < share < 0.45) if items == 1 else (0.04 < share < 0.08)


def test_period_refuses_a_crawl_that_does_not_repeat_itself():
    run = paper.crawl(500, agent="random")
    with pytest.raises(ValueError, match="no period"):
        paper.period(run)
