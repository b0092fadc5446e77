"""Checks of arguments: what they let through, what they refuse, and how they say so."""

import pickle
import re
from fractions import Fraction

import numpy as np
import pytest

from crawl_env.errors import (
    ElementError,
    check_array,
    check_choice,
    check_non_negative,
    check_positive,
    check_range,
    check_whole,
    check_within,
)
from tests.refusals import refused

NAN, INF, HUGE = float("nan"), float("inf"), 10**400


def test_any_kind_of_number_is_taken_and_becomes_a_float():
    for number in (2, 2.0, np.float32(2), np.int8(2), Fraction(2)):
        for checked in (
            check_positive("x", number),
            check_non_negative("x", number),
            check_within("x", number, 2, 2),
            check_within("x", number),
        ):
            assert type(checked) is float
            assert checked == 2


def test_what_is_no_number_in_the_range_is_refused():
    for wrong in (NAN, INF, -INF, HUGE, -HUGE, True, "2", None, [2.0], -1, 1j):
        refuse(wrong)


def test_the_ends_of_a_range_belong_to_it():
    assert check_whole("x", 3, 3) == 3
    assert check_whole("x", 2**63 - 1) == 2**63 - 1
    assert check_within("x", 3, 3, 4) == 3
    assert check_within("x", 4, 3, 4) == 4
    with refused("x is 9223372036854775808; it must be a whole number of at least 1 and below"):
        check_whole("x", 2**63)


def refuse(wrong):
    for check in (check_positive, check_non_negative, check_whole):
        with pytest.raises(ValueError, match=r"^x is .*; it must be "):
            check("x", wrong)
    with pytest.raises(ValueError, match=r"^x is .*; it must be (a number, )?between 0 and 3$"):
        check_within("x", wrong, 0, 3)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: check_positive("x", 0), "x is 0; it must be positive and finite"),
        (
            lambda: check_non_negative("x", np.float64(-1), "time"),
            "x is -1.0; it must be zero or positive and finite (time)",
        ),
        (
            lambda: check_within("x", 1, 0, 1, open_high=True),
            "x is 1; it must be at least 0 and below 1",
        ),
        (
            lambda: check_within("x", 0, 0, 1, open_low=True),
            "x is 0; it must be above 0 and at most 1",
        ),
        (lambda: check_within("x", 1, 1, open_low=True), "x is 1; it must be finite and above 1"),
        (lambda: check_within("x", 2, high=1), "x is 2; it must be finite and at most 1"),
        (lambda: check_within("x", NAN), "x is nan; it must be finite"),
        (lambda: check_positive("x", "2"), "x is '2'; it must be a number, positive and finite"),
        (lambda: check_whole("x", 2.0), "x is 2.0, a float; it must be a whole number"),
        (
            lambda: check_whole("x", 1, 2, "states"),
            "x is 1; it must be a whole number of states, at least 2",
        ),
        (
            lambda: check_whole("x", -(10**5000)),
            "x is too large a number; it must be a whole number of at least 1",
        ),
        (lambda: check_choice("rule", "stp", ["step"]), "unknown rule 'stp'; did you mean 'step'?"),
        (lambda: check_choice("rule", ["step"], ["step"]), "unknown rule ['step']"),
    ],
)
def test_messages_tell_the_value_and_the_range(check, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        check()


def test_an_error_of_an_element_survives_another_process():
    with pytest.raises(ElementError) as caught:
        check_array("x", [0, -1], low=0)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == "source 1: x is -1; it must be zero or positive and finite"
    assert (copy.what, copy.position, copy.other) == (caught.value.what, 1, None)


class OnDevice:
    """As a tensor on a GPU."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("copy it to the host")


def test_an_array_is_copied_as_float64():
    given = np.arange(6).reshape(2, 3)
    for shape in (None, (2, 3), (None, 3)):
        array = check_array("x", given, shape, low=0, high=5)
        assert array.dtype == np.float64
        np.testing.assert_array_equal(array, given)
        assert not np.shares_memory(array, given)
    check_range("x", np.array(INF), low=1, finite=False, whole=True)


@pytest.mark.parametrize(
    ("given", "rules", "message"),
    [
        ([1, "a"], {}, "x must be a number or an array of numbers: "),
        ([[1, 2], [3]], {}, "x must be a number or an array of numbers: "),
        ([HUGE], {}, "x must be a number or an array of numbers: "),
        (np.array([1], "M8[s]"), {}, "x has dtype datetime64[s]; give real numbers"),
        ([np.timedelta64(1, "h")], {}, "x has dtype timedelta64[h]; give real numbers"),
        (OnDevice(), {}, "x must be a number or an array of numbers: copy it to the host"),
        (np.array([1j]), {}, "x has dtype complex128; give real numbers"),
        ([1, 2], {"shape": (3,)}, "x has shape (2,); it must have shape (3,)"),
        (1.0, {"shape": (3,)}, "x has shape (); it must have shape (3,)"),
        ([1], {"shape": (None, 3)}, "x has shape (1,); it must have shape (any, 3)"),
        ([[1, NAN]], {}, "source 1: x is nan; it must be finite"),
        ([0, INF], {"low": 0}, "source 1: x is inf; it must be zero or positive and finite"),
        (
            [1, 0],
            {"low": 0, "high": 1, "open_low": True, "unit": "items"},
            "source 1: x is 0; it must be above 0 and at most 1 (items)",
        ),
        ([-1], {"low": 0, "element": "item"}, "item 0: x is -1; it must be zero or positive"),
    ],
)
def test_what_is_no_such_array_is_refused(given, rules, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        check_array("x", given, **rules)


@pytest.mark.parametrize(
    ("given", "rules", "message"),
    [
        (NAN, {"finite": False}, "x is nan; it must be a number"),
        ([2, 1.5], {"whole": True}, "source 1: x is 1.5; it must be a whole number, finite"),
        ([1, 0], {"low": 1, "names": ("a", "b")}, "source 'b': x is 0; it must be finite and at "),
    ],
)
def test_what_is_out_of_a_range_is_refused(given, rules, message):
    with pytest.raises(ElementError, match=f"^{re.escape(message)}"):
        check_range("x", np.array(given), **rules)
