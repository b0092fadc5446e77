"""The price of a budget: the Lagrange multiplier λ at which what is spent meets the budget.

What is spent falls as λ rises, by jumps where an interval between crawls changes, and the dual
function of a relaxed problem is convex, with the slope budget − spent. Every price of this project
is therefore the point at which a monotone condition begins to hold, or the minimiser of a convex
function, and is found by one of these searches, to which callers give a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crawl_env.extras import missing
from crawl_env.numerics import BoolArray, FloatArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_HALVES, _FAR = 40, 2.0**-40  # halvings before what is still above 0 is searched for by logarithm
_FIRST, _LAST = 1.02, 1e6  # factors by which a bracket of λ is widened
_FAR_DOWN = 2.0**-20  # steps in which a far minimiser is approached
CLOSE = 1e-13  # fraction of λ at which bounds are close, where the caller names no other
_STEP_DOWN = 0.25  # factor by which λ is reduced at most until more than a level is spent
_FARTHEST = 64.0  # powers of that factor that are one step
_LEAST_STEP = 1.03  # factor by which it is changed at least until there are bounds on both sides
_LEAST_PRICE = np.nextafter(0.0, 1.0)  # whose logarithm is a number
_MOST_STEPS = 60
_SECTIONS = 75  # golden ones: the bracket shrinks by 2e-16
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
_MOST_CUTS = 400
_CUT_GAP = 1e-12  # of the minimum of two prices, at which the search ends
_TINY, _LARGEST = 1e-300, 1e300


# ------------------------------------------------------------- where a condition begins to hold


class Bracket:
    """Bounds on the smallest x ≥ 0 at which a condition that is monotone in x holds, any shape: it
    holds at `high`, and not at `low`, unless that is where the search began."""

    def __init__(self, low: FloatArray, high: FloatArray) -> None:
        self.low, self.high, self._halved = low, high, 0

    def middle(self) -> FloatArray:
        """Return what lies between the bounds; what is far below the first `high` is approached by
        orders of magnitude."""
        middle = 0.5 * (self.low + self.high)
        if self._halved >= _HALVES:
            middle = np.where(self.low > 0, middle, _FAR * self.high)
        return middle

    def learn(self, x: FloatArray, holds: BoolArray) -> None:
        """Move the bound to x on whose side it is."""
        self.high, self.low = np.where(holds, x, self.high), np.where(holds, self.low, x)
        self._halved += 1


def first_where(
    holds: Callable[[FloatArray], BoolArray],
    high: FloatArray,
    low: FloatArray | float = 0.0,
    tolerance: float = 0.0,
    bounds: tuple[FloatArray, FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return bounds on the smallest x in (low, high] at which a monotone condition holds.

    Arguments:
        holds: whether it holds, an array of the shape of x; it is taken to hold at `high`.
        high, low: bounds ≥ 0, any shape.
        tolerance: of the upper bound, as a fraction; 0: the bounds are neighbouring numbers.
        bounds: closer ones, as of `near_level`, outside which `holds` is not asked. The result is
            the same, since they do not change at which numbers the condition is examined.

    >>> low, high = first_where(lambda x: x * x >= [2.0, 3.0], np.array([9.0, 9.0]))
    >>> high, bool((np.nextafter(low, 9.0) == high).all())
    (array([1.41421356, 1.73205081]), True)
    """
    bracket = Bracket(np.zeros_like(high) + low, high)
    while True:
        middle = bracket.middle()
        is_open = (bracket.low < middle) & (middle < bracket.high)
        is_open &= bracket.high - bracket.low > tolerance * bracket.high
        if not is_open.any():
            return bracket.low, bracket.high
        middle = np.where(is_open, middle, bracket.high)
        is_met = ~is_open
        if bounds is not None:
            is_met |= middle >= bounds[1]
        if bounds is None or np.any(~is_met & (middle > bounds[0])):
            is_met |= holds(middle)
        bracket.learn(middle, is_met)


class LevelBracket:
    """Bounds on the smallest λ in (0, high] at which no more than a level is spent, any shape.

    The λ to be examined next is found by Chandrupatla's method (1997) from the
    logarithms of λ and of the spending, which is nearly a power of λ in large fleets: by inverse
    quadratic interpolation, or by halves where that is not safe, as next to a jump. Until there are
    bounds on both sides, the power is taken to be −1, −1/2, −1/4, … in turn, so that the next λ is
    likely to lie beyond the one that is sought.

    Arguments:
        level: budget units, positive.
        high: a λ at which nothing is spent.
        guess: λ with which the search begins, broadcast to the shape of `high`; 0: none.
        low: a λ at which more than the level is spent; 0: none is known.
    """

    def __init__(
        self,
        level: float,
        high: FloatArray,
        guess: FloatArray | float = 0.0,
        low: FloatArray | float = 0.0,
    ) -> None:
        self._level, self._reach = level, 1.0
        self.low, self.high = np.zeros_like(high) + low, high.copy()
        # Logarithms of the spending at the bounds, as a fraction of the level.
        self._above, self._below = np.full_like(high, np.inf), np.full_like(high, -np.inf)
        between = np.where(self.low > 0.0, np.sqrt(self.low) * np.sqrt(high), _STEP_DOWN * high)
        self._middle = np.where((guess > self.low) & (guess < high), guess, between)

    def middle(self) -> FloatArray:
        """Return the λ to be examined next."""
        return self._middle

    def jump(self, at: FloatArray, known: BoolArray) -> None:
        """Examine next the two numbers beside the only λ between the bounds at which the spending
        changes, where it is `known`."""
        above, below = np.nextafter(at, np.inf), np.nextafter(at, 0.0)
        at = np.where(above < self.high, above, below)
        self._middle = np.where(known & (self.low < at) & (at < self.high), at, self._middle)

    def learn(self, spending: FloatArray, fits: BoolArray) -> None:
        """Move the bounds to the `middle`, at which so much is spent: the upper one where it is
        `fits`, no more than the level, else the lower one."""
        with np.errstate(divide="ignore"):
            x, excess = self._middle, np.log(spending / self._level)
        previous = np.where(fits, self.high, self.low), np.where(fits, self._below, self._above)
        self.low, self.high = np.where(fits, self.low, x), np.where(fits, x, self.high)
        self._above = np.where(fits, self._above, excess)
        self._below = np.where(fits, excess, self._below)
        opposite = np.where(fits, self.low, self.high), np.where(fits, self._above, self._below)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            inside = self._inside((x, excess), opposite, previous)
            farthest = _STEP_DOWN ** min(self._reach, _FARTHEST)
            down = np.clip(np.exp(self._reach * self._below), farthest, 1.0 / _LEAST_STEP)
            up = self.low * np.maximum(np.exp(self._reach * self._above), _LEAST_STEP)
        up = np.minimum(up, np.sqrt(self.low) * np.sqrt(self.high))
        outside = np.where(self.low > 0.0, up, down * self.high)
        two_sided = np.isfinite(self._above) & np.isfinite(self._below)
        middle = np.where(two_sided, inside, outside)
        self._middle, self._reach = np.maximum(middle, _LEAST_PRICE), 2.0 * self._reach

    @staticmethod
    def _inside(
        last: tuple[FloatArray, FloatArray],
        opposite: tuple[FloatArray, FloatArray],
        previous: tuple[FloatArray, FloatArray],
    ) -> FloatArray:
        """Return the λ between the last bound and the opposite one at which the logarithm of the
        spending is likely to be 0, from these and the bound that was replaced: λ and logarithm of
        each."""
        (x, f), (b, g), (c, h) = last, opposite, previous
        whole, former = np.log(b) - np.log(x), np.log(c) - np.log(x)
        share, ratio = whole / (whole - former), (f - g) / (h - g)
        safe = (ratio**2 < share) & ((1.0 - ratio) ** 2 < 1.0 - share)
        part = f / (g - f) * h / (g - h) + former / whole * f / (h - f) * g / (h - g)
        line = np.where(np.isfinite(h), 0.5, f / (f - g))  # between the first two bounds
        part = np.where(safe & np.isfinite(part), part, line)
        least = np.minimum(0.25 * CLOSE / np.abs(whole), 0.5)
        return np.asarray(np.exp(np.log(x) + np.clip(part, least, 1.0 - least) * whole))


def near_level(
    spending: Callable[[FloatArray], FloatArray],
    level: float,
    high: FloatArray,
    guess: FloatArray | float = 0.0,
    tolerance: float = CLOSE,
) -> tuple[FloatArray, FloatArray]:
    """Return close bounds on the smallest λ in (0, high] at which no more than a level is spent, by
    `LevelBracket`.

    Arguments:
        spending: at λ, of its shape; it never increases, and at `high` it is 0.
        level: budget units, positive.
        guess: λ with which the search begins, broadcast to the shape of `high`; 0: none.
        tolerance: distance of the bounds as a fraction of the upper one at which the search ends.

    >>> low, high = near_level(lambda x: 1 / x - 1 / 9, 2.0, np.array([9.0]))
    >>> bool((low < high).all()), bool((abs(high - 9 / 19) < 1e-12).all())
    (True, True)
    """
    bracket = LevelBracket(level, high, guess)
    for _ in range(_MOST_STEPS):
        if np.all(bracket.high - bracket.low <= tolerance * bracket.high):
            break
        amount = spending(bracket.middle())
        bracket.learn(amount, amount <= level)
    return bracket.low, bracket.high


def first_near(
    holds: Callable[[float], bool],
    guess: float,
    least: float = 0.0,
    most: float = _LARGEST,
    tolerance: float = 0.0,
    factor: float = 2.0,
    distance: float = 0.0,
) -> tuple[float, float]:
    """Return bounds on the smallest positive number at which a monotone condition holds.

    Arguments:
        guess: where the search begins; it widens by powers of `factor`, which are squared.
        least, most: bounds on the result, both of which are returned as it where the condition
            holds at `least`, or nowhere.
        tolerance: of the upper bound, as a fraction; 0: the bounds are neighbouring numbers.
        distance: of the bounds, at which the search ends, too.

    >>> low, high = first_near(lambda x: x**3 >= 10.0, guess=1e-6)
    >>> low < high, round(high, 12)
    (True, 2.154434690032)
    """
    low = high = min(max(guess, least), most)
    while holds(low):
        if low == least:
            return least, least
        high, low, factor = low, max(low / factor, least), factor * factor
    while low == high or not holds(high):
        if high == most:
            return most, most
        low, high, factor = high, min(high * factor, most), factor * factor
    halved = 0
    while True:  # as in `first_where`, for one number without arrays
        middle = 0.5 * (low + high) if low > 0.0 or halved < _HALVES else _FAR * high
        if not low < middle < high or high - low <= max(tolerance * high, distance):
            return low, high
        low, high = (low, middle) if holds(middle) else (middle, high)
        halved += 1


# ----------------------------------------------------------------- where a function is least


class Tangent(NamedTuple):
    """A convex dual function at a multiplier, and its tangent there."""

    multiplier: float  # λ
    net: float  # utility / step: reward less λ × spending
    spending: float  # budget units / step
    budget: float  # M; M − spending is the slope

    @property
    def value(self) -> float:
        """Return λM + reward − λ × spending, utility / step."""
        return self.net + self.multiplier * self.budget

    @property
    def at_zero(self) -> float:
        """Return where the tangent meets λ = 0, utility / step."""
        return self.net + self.multiplier * self.spending


def least_dual(
    dual: Callable[[float], Tangent],
    budget: float,
    top: Callable[[], float],
    guess: float = 0.0,
    gap: float = 0.0,
) -> Tangent:
    """Return where a convex dual function of λ ≥ 0 is least, to a fraction `gap`.

    Its minimum lies between a λ at which more than the budget is spent and one at which less is,
    and is not below the point where the tangents at these two meet. The next λ is in turn where the
    spending would be M if it were a power of λ, as it nearly is in large fleets, and where the
    tangents meet, which is the minimum if the function has two pieces.

    Arguments:
        budget: M.
        top: a multiplier at which no more than the budget is spent; asked for without a guess.
        guess: λ with which the search begins; 0: none.
    """
    low, high = _bracket(dual, top, budget, guess)
    while low.spending > budget:
        meeting = (low.at_zero - high.at_zero) / (low.spending - high.spending)
        floor = low.at_zero + meeting * (budget - low.spending)
        best = low if low.value < high.value else high
        if not low.multiplier < meeting < high.multiplier or best.value - floor <= gap * floor:
            break
        power = _power(low, high, budget)
        for multiplier in (power, meeting):
            if low.multiplier < multiplier < high.multiplier:
                tangent = dual(multiplier)
                low, high = (tangent, high) if tangent.spending > budget else (low, tangent)
    return low if low.value < high.value else high


def _bracket(
    dual: Callable[[float], Tangent], top: Callable[[], float], budget: float, guess: float
) -> tuple[Tangent, Tangent]:
    """Return the dual function at a λ at which more than the budget is spent, or at 0, and at a λ
    at which no more is."""
    if guess == 0.0:
        low = dual(0.0)
        return low, low if low.spending <= budget else dual(top())
    low = high = dual(guess)
    factor = _FIRST
    while low.spending <= budget and low.multiplier > 0.0:
        high, low = low, dual(low.multiplier / factor if factor < _LAST else 0.0)
        factor *= factor
    while high.spending > budget:
        low, high = high, dual(high.multiplier * factor)
        factor *= factor
    return low, high


def _power(low: Tangent, high: Tangent, budget: float) -> float:
    """Return the λ at which M would be spent if the spending were a power of λ between two."""
    if not (low.multiplier > 0.0 and high.spending > 0.0):
        return 0.5 * (low.multiplier + high.multiplier)
    fall = math.log(low.spending / high.spending)
    part = math.log(low.spending / budget) / fall
    return low.multiplier * (high.multiplier / low.multiplier) ** part


def least_where(
    function: Callable[[FloatArray], FloatArray], high: FloatArray, least: FloatArray | float = 0.0
) -> FloatArray:
    """Return the minimiser of convex functions on [0, high], any shape, by golden sections.

    Arguments:
        function: the values at points of that shape.
        least: where the minimiser may be many orders of magnitude below `high`: the size below
            which it is negligible.

    >>> least_where(lambda x: (x - 1.0) ** 2, np.array([3.0])).round(6)
    array([1.])
    """
    while np.any(least):
        near = _FAR_DOWN * high
        # The minimiser lies below any point at which the function increases.
        below = (function(0.5 * near) <= function(near)) & (near > least)
        if not below.any():
            break
        high = np.where(below, near, high)
    low = np.zeros_like(high)
    for _ in range(_SECTIONS):
        right = low + _GOLDEN * (high - low)
        left = high - _GOLDEN * (high - low)
        falls = function(left) > function(right)
        low, high = np.where(falls, left, low), np.where(falls, high, right)
    return 0.5 * (low + high)


def least_of_two(
    function: Callable[[FloatArray], tuple[float, FloatArray]], corner: FloatArray
) -> tuple[FloatArray, float]:
    """Return the minimiser of a convex function of two numbers on [0, corner], and its minimum.

    The method of centres of gravity (Levin 1965; Newman 1965): the subgradient at the centroid of
    a polygon cuts off a part without the minimiser, at least 1/e of its area. At its corners, the
    subgradient gives a lower bound on the minimum: the search ends when the two meet.

    Arguments:
        function: returns value and subgradient, (2,), at a point, (2,).

    >>> least_of_two(lambda x: (abs(x[0] - 1) + (x[1] - 2) ** 2,
    ...     np.array([np.sign(x[0] - 1), 2 * (x[1] - 2)])), np.array([3.0, 3.0]))[0].round(4)
    array([1., 2.])
    """
    polygon = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    best, least, most = np.zeros(2), np.inf, -np.inf
    for _ in range(_MOST_CUTS):
        middle = _centroid(polygon)
        value, slope = function(middle * corner)
        slope = slope * corner
        if value < least:
            best, least = middle, value
        most = max(most, value + float(((polygon - middle) @ slope).min()))
        if least - most <= _CUT_GAP * abs(least) or not slope.any():
            break
        polygon = _cut(polygon, middle, slope)
        if len(polygon) < 3:
            break
    return best * corner, least


def _centroid(polygon: FloatArray) -> FloatArray:
    first = polygon[0]
    x, y = (polygon[1:] - first).T
    areas = x[:-1] * y[1:] - x[1:] * y[:-1]
    total = areas.sum()
    if abs(total) < _TINY:
        return np.asarray(polygon.mean(axis=0))
    inside = np.array([areas @ (v[:-1] + v[1:]) for v in (x, y)]) / (3.0 * total)
    return np.asarray(first + inside)


def _cut(polygon: FloatArray, through: FloatArray, slope: FloatArray) -> FloatArray:
    """Return the part of a polygon where slope·(x − through) ≤ 0."""
    height = (polygon - through) @ slope
    corners: list[FloatArray] = []
    for p, q, here, there in zip(
        polygon, np.roll(polygon, -1, axis=0), height, np.roll(height, -1), strict=True
    ):
        if here <= 0:
            corners.append(p)
        if (here < 0 < there) or (there < 0 < here):
            corners.append(p + (q - p) * (here / (here - there)))
    return np.array(corners)


def least_of_sum(
    functions: Callable[[FloatArray], tuple[FloatArray, FloatArray | csr_array]],
    slope: FloatArray,
    start: FloatArray,
    gap: float = 1e-6,
    within: csr_array | None = None,
) -> tuple[FloatArray, float]:
    """Return the minimiser over x ≥ 0 of slope·x + Σ_i f_i(x), f_i ≥ 0 convex, and the minimum.

    Kelley's method of cutting planes (1960), with cuts of each f_i: their linear program bounds
    the minimum from below, and its solution is where the functions are evaluated next. It is exact
    in a few dozen evaluations where the f_i have few pieces each, and needs SciPy.

    Arguments:
        functions: returns f, (N,), and subgradients, (N, D), dense or sparse, at a point, (D,).
        slope: (D,), positive; without `within` all of it.
        start: (D,).
        gap: between the two bounds, as a fraction, at which the search ends.
        within: rows A, (R, D), of A x ≤ 0, which `start` and the minimiser satisfy.

    >>> def one(x):
    ...     return np.maximum([3.0 - x[0], 2.0 - x[1]], 0), -1.0 * np.diag([x[0] < 3, x[1] < 2])
    >>> least_of_sum(one, np.array([0.5, 2.0]), np.zeros(2))
    (array([3., 0.]), 3.5)
    """
    try:
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, eye_array, hstack, vstack
    except ImportError as error:
        raise ImportError(missing("scipy", "a bound with several prices")) from error

    point, best, least = start, start, np.inf
    cuts: list[csr_array] = []
    levels: list[FloatArray] = []
    for _ in range(_MOST_CUTS):
        values, slopes = functions(point)
        total = float(slope @ point + values.sum())
        if total < least:
            best, least = point, total
        number = len(values)
        if within is not None and not cuts:
            cuts.append(hstack([within, csr_array((within.shape[0], number))], format="csr"))
            levels.append(np.zeros(within.shape[0]))
        cuts.append(hstack([csr_array(slopes), -eye_array(number)], format="csr"))
        levels.append(slopes @ point - values)
        objective = np.concatenate((slope, np.ones(number)))
        solution = linprog(objective, vstack(cuts), np.concatenate(levels))  # all are ≥ 0
        if not solution.success or least - solution.fun <= gap * abs(least):
            break
        before, point = point, solution.x[: slope.size]
        if np.array_equal(point, before):  # what is left is within the tolerance of the program
            break
    return best, least
