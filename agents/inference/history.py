"""What the crawls of sources found, as sums over them, and what a network reads of these sums."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.inference.cycles import published
from agents.theory.closed_form import decayed
from crawl_env.compiled import compiled
from crawl_env.numerics import FloatArray

Array32 = NDArray[np.float32]

_PROBES = np.array([0.2, 1.0, 5.0])  # decays per tour whose likelihoods are inputs
_LONG, _SHORT = 30.0, 5.0  # tours over which the two shorter memories fade to 1/e
_VARIANCE = np.pi**2 / 6  # of ln ξ, for exponential ξ
LEAST, _MOST = 1e-30, 1e15  # utility of a crawl: below, float32 has too few digits, and it is none

# Sums over the crawls of a source. "All" are kept for ever, "long" and "short" fade.
SUMS = (
    *("crawls", "gap", "gap_empty", "harvest", "harvest2", "hits"),
    *("exposure_a", "exposure_b", "exposure_c", "likelihood_a", "likelihood_b", "likelihood_c"),
    *("items", "number", "age", "age2", "log", "age_log"),
    *("long_crawls", "long_gap", "long_exposure", "long_harvest", "long_hits", "long_items"),
    *("short_crawls", "short_gap", "short_exposure", "short_harvest", "short_hits", "short_items"),
    *("last_gap", "last_harvest", "log_harvest", "log_harvest2"),
    *("published_cos", "published_sin"),  # see `agents.inference.cycles.published`
)
_S = len(SUMS)
GAP, EMPTY, HITS, ITEMS, NUMBER, PUBLISHED = 1, 2, 5, 12, 13, 34
_LONG_AT, _SHORT_AT, _LAST_AT = 18, 24, 30
FLEET = 12  # numbers that describe a fleet, see `fleet_summary`
INPUTS = (
    *("crawls", "gap", "gap_empty", "hits", "flow_a", "flow_b", "flow_c", "fit_a", "fit_c"),
    *("dispersion", "hit_rate", "rate", "number", "slope", "slope_known", "level", "plug_in"),
    *("long_crawls", "long_flow", "long_hits", "long_rate"),
    *("short_crawls", "short_flow", "short_hits", "short_rate"),
    *("last_gap", "last_flow", "elapsed", "elapsed_2", "clock"),
    *("told_utility", "told_decay", "shows_items", "shows_sums", "told"),
    *("long_excess", "long_excess_items", "short_excess", "short_excess_items", "effective"),
    *("shrunken_rate", "shrunken_flow", "shrunken_level", "shrunken_worth", "shrunken_plug_in"),
    *("size", "size_spread"),
    *("fleet_rates", "fleet_flows", "fleet_levels", "fleet_clump", "fleet_within", "fleet_sizes"),
)
F = len(INPUTS)
PLUG_IN = INPUTS.index("shrunken_plug_in")
# Inputs whose means and deviations over the fleet are its context. With all of them the network
# recognised the fleets of its training.
POOLED = tuple(
    INPUTS.index(name)
    for name in (
        *("hits", "flow_b", "fit_a", "fit_c", "dispersion", "hit_rate", "rate", "slope", "level"),
        *("plug_in", "long_excess", "long_excess_items", "short_excess", "effective"),
    )
)
C = 2 * len(POOLED)


class Shows(NamedTuple):
    """What an agent observes besides the harvests, each 0 or 1."""

    items: float
    sums: float
    told: float  # mean utilities and decay rates


@compiled
def add_crawls(sums: Array32, cells: NDArray[np.intp], gaps: FloatArray, harvests: FloatArray,
         unit: float, most: float, time: FloatArray, frequency: float) -> None:  # fmt: skip
    """Add crawls, (K,), after gaps in tours, with harvest, items and sums (7, K), to the sums of
    their sources; `unit` is the tour, time. The sums over more than `most` tours are scaled
    down to as many, so that earlier crawls fade over this time. The crawls were made at `time`,
    (K,), and `frequency` is that of a day."""
    for k in range(cells.size):
        row, x = sums[cells[k]], gaps[k]
        h = min(harvests[0, k], _MOST) if harvests[0, k] >= LEAST else 0.0
        if not (harvests[0, k] >= 0.0 and x < 1e6):
            continue
        hit = 1.0 if h > 0.0 else 0.0
        items = min(max(harvests[1, k], 0.0), 1e9)
        row[0] += 1.0
        row[1] += x
        row[2] += x * (1.0 - hit)
        row[3] += h
        row[4] += h * h
        row[5] += hit
        for j in range(3):
            z = _PROBES[j] * x
            exposure = x * (1.0 - decayed(z)[1])
            row[6 + j] += exposure
            row[9 + j] += h * np.log(max(exposure, 1e-12))
        row[12] += items
        number = harvests[2, k]
        if number >= 1.0 and abs(harvests[5, k]) <= 1e3 * number:
            row[13] += number
            row[14] += harvests[3, k] / unit
            row[15] += harvests[4, k] / unit**2
            row[16] += harvests[5, k]
            row[17] += harvests[6, k] / unit
            wave = published(number, harvests[3, k], harvests[4, k], time[k], frequency)
            row[PUBLISHED] += wave.real
            row[PUBLISHED + 1] += wave.imag
        exposure = x * (1.0 - decayed(x)[1])
        for at, memory in ((_LONG_AT, _LONG), (_SHORT_AT, _SHORT)):
            fade = np.exp(-x / memory)
            for j in range(6):
                row[at + j] *= fade
            row[at] += 1.0
            row[at + 1] += x
            row[at + 2] += exposure
            row[at + 3] += h
            row[at + 4] += hit
            row[at + 5] += items
        row[_LAST_AT] = x
        row[_LAST_AT + 1] = h
        if h > 0.0:
            row[_LAST_AT + 2] += np.log(h)
            row[_LAST_AT + 3] += np.log(h) ** 2
        if row[1] > most:
            share = most / row[1]
            for j in range(_LONG_AT):
                row[j] *= share
            for j in range(_LAST_AT + 2, _S):
                row[j] *= share


@compiled
def fleet_summary(sums: Array32) -> FloatArray:
    """Return of a fleet: the harvest and items per tour of crawled gaps, the slope and level of
    ln w, and the rate of crawls that found something; and what shrinks the estimates of its
    sources, by the method of moments (empirical Bayes): 1/CV² of the rates, C = Σh²/Σh relative to
    the harvest per tour, 1/CV² of the flows, the harvest per exposure, the variance of ln w within
    a source, the number of items that counts as much as the fleet's level, and the mean of ln h."""
    crawls = gap = harvest = items = number = log = age = down = across = hits = 0.0
    harvest2 = exposure = survived = log_harvest = 0.0
    for i in range(len(sums)):
        row = sums[i]
        crawls += row[0]
        gap += row[1]
        harvest += row[3]
        harvest2 += row[4]
        items += row[12]
        hits += row[5]
        exposure += row[7]
        log_harvest += row[_LAST_AT + 2]
        n = row[13]
        if n > 0.0:
            number += n
            age += row[14]
            log += row[16]
            across += max(row[15] - row[14] * row[14] / n, 0.0)
            down += row[14] * row[16] / n - row[17]
    out = np.empty(FLEET)
    out[0] = harvest / gap if harvest > 0.0 else 1.0
    out[1] = (items + 0.5) / (gap + 1.0)
    out[2] = min(max((down + 2.0) / (across + 2.0), 0.03), 30.0)
    out[3] = (log + out[2] * age) / number if number > 0.0 else np.log(out[0])
    out[4] = (hits + 0.5) / (gap + 1.0)
    unit, rate = out[0], out[1]
    # At least what it is if all harvests are equal: the squares of tiny ones vanish in float32.
    clump = max(harvest2 / harvest, harvest / crawls) / unit if harvest > 0.0 else 1.0
    flow = harvest / unit / exposure if harvest > 0.0 else 1.0
    rates = gaps = flows = exposures = levels = square = 0.0
    for i in range(len(sums)):
        row = sums[i]
        rates += (row[12] - rate * row[1]) ** 2 - rate * row[1]
        gaps += (rate * row[1]) ** 2
        expected = flow * row[7]
        flows += (row[3] / unit - expected) ** 2 - clump * expected
        exposures += expected**2
        n = row[13]
        if n > 0.0:
            level = (row[16] + out[2] * row[14]) / n - out[3]
            levels += n * level**2
            square += n * n
            survived += n * np.exp(-out[2] * row[14] / n)
    within = 1.6
    if number > 0.0:
        spread = np.log(max(harvest, 1e-30) / max(survived, 1e-30)) - out[3]
        within = (2.0 * max(spread, 0.05) * number + 1.6 * 10.0) / (number + 10.0)
    out[5] = min(max((gaps + 1.0) / max(rates + 1.0, 1e-9), 0.1), 30.0)
    out[6] = clump
    out[7] = min(max((exposures + 1.0) / max(flows + 1.0, 1e-9), 0.1), 30.0)
    out[8] = flow
    out[9] = within
    sources = 0.0
    for i in range(len(sums)):
        sources += 1.0 if sums[i, 13] > 0.0 else 0.0
    more = max(number - square / max(number, 1.0), 0.0)
    between = (levels - within * max(sources - 1.0, 0.0) + 0.3 * 5.0) / (more + 5.0)
    out[10] = min(max(within / max(between, 0.01), 0.2), 50.0)
    out[11] = log_harvest / hits - np.log(unit) if hits > 0.0 else 0.0
    return out


@compiled
def network_inputs(
    sums: Array32,
    cells: NDArray[np.intp],
    n: int,
    age: FloatArray,
    fleets: FloatArray,
    clocks: FloatArray,
    tour: float,
    shows: FloatArray,
    parameters: FloatArray,
) -> tuple[Array32, Array32]:
    """Return the `INPUTS` of cells (K,) of B fleets of n sources, (K, F), and the plug-in estimates
    of their decays per tour, δ, (K,).

    Arguments:
        sums: (B·N, S).
        age: (B·N,) steps.
        fleets: (B, 12), see `fleet_summary`.
        clocks: (B,) tours since the beginning that are remembered.
        tour: steps.
        shows: (3,) of `Shows`.
        parameters: (2, B·N) ln of the mean utility relative to its mean and of the decay per tour.
    """
    out = np.empty((cells.size, F), dtype=np.float32)
    centre = np.empty(cells.size, dtype=np.float32)
    for k in range(cells.size):
        cell = cells[k]
        row, x, fleet = sums[cell], out[k], fleets[cell // n]
        unit, rate, slope, level, hit_rate = fleet[0], fleet[1], fleet[2], fleet[3], fleet[4]
        elapsed = min(age[cell] / tour, 1e4)
        number = row[0]
        x[0] = np.log(number + 0.3)
        x[1] = np.log(row[1] + 0.3)
        x[2] = np.log(row[2] + 0.3)
        x[3] = (row[5] + 0.5) / (number + 1.0)
        harvest = row[3] / unit
        for j in range(3):
            x[4 + j] = np.log((harvest + 0.3) / (row[6 + j] + 0.3))
        # As in `fleet_summary`.
        size = max(row[4] / row[3], row[3] / row[0]) if row[3] > 0.0 else unit
        clump = size / unit
        x[7] = 0.0
        x[8] = 0.0
        if row[3] > 0.0:
            for j in range(2):
                other = 6 if j == 0 else 8
                scaled = harvest * np.log(row[7] / row[other])
                more = (row[other + 3] - row[10]) / unit
                x[7 + j] = min(max((scaled + more) / clump, -6.0), 6.0)
        x[9] = np.log(clump + 0.01)
        x[10] = np.log((row[5] + 0.5) / (row[2] + 0.5 * (row[1] - row[2]) + 0.5 / hit_rate))
        x[11] = np.log((row[12] + 0.5) / (row[1] + 0.5 / rate)) * shows[0]
        x[12] = np.log(row[13] + 0.3) * shows[1]
        x[13] = 0.0
        x[14] = 0.0
        x[15] = 0.0
        own = slope
        if shows[1] > 0.0:
            count = row[13]
            across = 0.0
            down = 0.0
            if count > 0.0:
                across = max(row[15] - row[14] * row[14] / count, 0.0)
                down = row[14] * row[16] / count - row[17]
            weight = _VARIANCE / (0.6 * slope) ** 2
            own = (slope * weight + down) / (across + weight)
            own = min(max(own, 0.05 * slope), 20.0 * slope)
            x[13] = np.log(own)
            x[14] = np.log(across / weight + 0.1)
            x[15] = (row[16] + own * row[14] + 2.0 * level) / (count + 2.0) - np.log(unit)
        x[16] = 0.0
        x[39] = np.log(row[3] / size + 0.3)
        flow = harvest / max(row[7], 1e-6)
        for m in range(2):
            at, memory = (_LONG_AT, _LONG) if m == 0 else (_SHORT_AT, _SHORT)
            fade = np.exp(-elapsed / memory)
            crawls, gap, exposure = row[at] * fade, row[at + 1] * fade, row[at + 2] * fade
            likely, most = flow * exposure, row[12] / max(row[1], 1e-6) * gap
            x[35 + 2 * m] = (row[at + 3] * fade / unit - likely) / np.sqrt(likely * clump + 0.1)
            x[36 + 2 * m] = (row[at + 5] * fade - most) / np.sqrt(most + 0.3) * shows[0]
            to = 17 + 4 * m
            x[to] = np.log(crawls + 0.3)
            x[to + 1] = np.log((row[at + 3] * fade / unit + 0.3) / (exposure + 0.3))
            x[to + 2] = (row[at + 4] * fade + 0.5) / (crawls + 1.0)
            x[to + 3] = np.log((row[at + 5] * fade + 0.5) / (gap + 0.5 / rate)) * shows[0]
        x[25] = np.log(row[_LAST_AT] + 0.1)
        x[26] = np.log(row[_LAST_AT + 1] / unit / (row[_LAST_AT] + 0.05) + 0.05)
        x[27] = np.log(elapsed + 0.1)
        x[28] = np.log(elapsed + 3.0)
        x[29] = np.log(clocks[cell // n] + 0.3)
        utility = parameters[0, cell] * shows[2]
        decay = parameters[1, cell] * shows[2]
        x[30] = utility
        x[31] = decay
        if shows[2] > 0.0 and shows[0] > 0.0:
            x[16] = x[11] - np.log(rate) + utility - decay
        elif shows[1] > 0.0:
            x[16] = x[11] + x[15] - x[13]
        elif shows[0] > 0.0:
            x[16] = x[11]
        else:
            x[16] = x[5]
        prior = fleet[5]
        x[40] = np.log((row[12] + prior) / (row[1] + prior / rate)) * shows[0]
        prior = fleet[7] * fleet[6]
        x[41] = np.log((harvest + prior) / (row[7] + prior / fleet[8]))
        x[42] = 0.0
        if shows[1] > 0.0:
            prior = fleet[10]
            x[42] = (row[16] + own * row[14] + prior * level) / (row[13] + prior) - np.log(unit)
        worth, prior = fleet[8] / rate, 2.0 * fleet[10] + 1.0
        fresh = row[12] * row[7] / max(row[1], 1e-9)  # items by how much of them was left
        x[43] = np.log((harvest + prior * worth) / (fresh + prior)) * shows[0]
        if shows[2] > 0.0 and shows[0] > 0.0:
            x[44] = x[40] - np.log(rate) + utility - decay
        elif shows[1] > 0.0:
            x[44] = x[40] + x[42] - x[13]
        elif shows[0] > 0.0:
            x[44] = x[40] + x[43]
        else:
            x[44] = x[41]
        hits = row[5]
        mean = (row[_LAST_AT + 2] - hits * np.log(unit) + 2.0 * fleet[11]) / (hits + 2.0)
        x[45] = mean - fleet[11]
        x[46] = 0.0
        if hits > 0.0:
            apart = row[_LAST_AT + 3] - row[_LAST_AT + 2] ** 2 / hits
            x[46] = np.log((max(apart, 0.0) + 2.0) / (hits + 1.0))
        x[47] = np.log(fleet[5]) * shows[0]
        x[48] = np.log(fleet[7])
        x[49] = np.log(fleet[10]) * shows[1]
        x[50] = np.log(fleet[6] + 0.01)
        x[51] = fleet[9] * shows[1]
        x[52] = fleet[11]
        decay = np.exp(decay) if shows[2] > 0.0 else (own if shows[1] > 0.0 else 1.0)
        centre[k] = min(max(decay, 1e-3), 1e3)
        x[32] = shows[0]
        x[33] = shows[1]
        x[34] = shows[2]
    return out, centre
