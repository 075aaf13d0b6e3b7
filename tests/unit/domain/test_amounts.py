"""shared/domain/amounts.py: exact, never rounded, without exponent (contracts 1)."""

from __future__ import annotations

from decimal import Inexact
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain import amounts

AMOUNTS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,4})?", fullmatch=True, alphabet=st.sampled_from("0123456789.-")
)
LARGEST = "9" * 15 + ".9999"


@pytest.mark.parametrize(
    ("quantity", "price", "amount"),
    [(2, "3.50", "7.00"), (1, "12", "12"), (0, "3.50", "0.00"), (0, "0", "0"), (999_999, "0.0001", "99.9999")],
)
def test_a_computed_amount_keeps_the_digits_behind_the_point(quantity: int, price: str, amount: str) -> None:
    assert amounts.times(quantity, price) == amount


def test_zero_has_no_sign_and_no_exponent() -> None:
    results = [
        amounts.negated("0"),
        amounts.add("-0", "-0"),
        amounts.difference("1.5", "1.50"),
        amounts.negated("-0.0000"),
    ]

    assert results == ["0", "0", "0.00", "0.0000"]


def test_sums_longer_than_any_message_stay_exact() -> None:
    longest = amounts.total([LARGEST] * 5000)

    assert longest == "4999999999999999999.5000"
    assert not amounts.fits(longest)


def test_a_balance_beyond_the_usual_28_digits_is_written_in_full() -> None:
    assert amounts.add("1" * 60, "0.0001") == "1" * 60 + ".0001"


def test_what_would_need_rounding_raises() -> None:
    with pytest.raises(Inexact):
        amounts.add("1" * 100, "0.0001")


@given(st.lists(AMOUNTS, max_size=8))
@settings(max_examples=200)
def test_a_total_is_exact_and_its_text_is_independent_of_the_order(values: list[str]) -> None:
    shuffled = sorted(values)
    expected = sum((Fraction(value) for value in values), Fraction(0))

    assert Fraction(amounts.total(values)) == expected
    assert amounts.total(values) == amounts.total(shuffled)
    assert "e" not in amounts.total(values).lower()
    assert not (expected == 0 and amounts.total(values).startswith("-"))


@given(AMOUNTS, AMOUNTS)
@settings(max_examples=200)
def test_a_difference_added_gives_the_new_amount(new: str, old: str) -> None:
    assert amounts.is_equal(amounts.add(old, amounts.difference(new, old)), new)
    assert Fraction(amounts.difference(new, old)) == Fraction(new) - Fraction(old)
    assert Fraction(amounts.negated(new)) == -Fraction(new)


@pytest.mark.parametrize(
    ("amount", "fits"),
    [
        (LARGEST, True),
        ("-" + LARGEST, True),
        ("1" + "0" * 15, False),
        ("0.00001", False),
        ("1\n", False),
        ("1E+3", False),
    ],
)
def test_fits_is_the_pattern_of_a_message(amount: str, fits: bool) -> None:
    assert amounts.fits(amount) is fits


def test_equal_amounts_are_told_from_equal_texts() -> None:
    assert amounts.is_equal("10", "10.0")
    assert not amounts.is_equal("10", "10.01")
