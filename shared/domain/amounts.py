"""Exact decimal arithmetic on amount texts (docs/contracts.md, section 1: Amount).

Nothing is ever rounded: a result that would need it raises instead. A computed text keeps as many digits behind the
point as its operands have ("3.50" twice is "7.00"), has no exponent, and a zero has no sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import ROUND_HALF_EVEN, Clamped, Context, Decimal, Inexact, InvalidOperation, Overflow, Rounded, Underflow

from shared.contracts.values import AMOUNT_PATTERN

# 10^15 in each of 2^31 entries of 2^31 streams has 34 digits before the point; four more stand behind it.
_EXACT = Context(
    prec=100, rounding=ROUND_HALF_EVEN, traps=[Clamped, Inexact, InvalidOperation, Overflow, Rounded, Underflow]
)
_AMOUNT = re.compile(AMOUNT_PATTERN.removesuffix("$") + r"\Z")


def add(left: str, right: str) -> str:
    """The sum of two amounts."""
    return _text(_EXACT.add(Decimal(left), Decimal(right)))


def difference(new: str, old: str) -> str:
    """What has to be added to `old` to get `new`."""
    return _text(_EXACT.subtract(Decimal(new), Decimal(old)))


def negated(amount: str) -> str:
    """The amount with the opposite sign."""
    return _text(_EXACT.minus(Decimal(amount)))


def times(quantity: int, price: str) -> str:
    """The amount of a quantity at a price."""
    return _text(_EXACT.multiply(Decimal(quantity), Decimal(price)))


def total(amounts: Iterable[str]) -> str:
    """The sum of amounts, "0" for none."""
    result = Decimal(0)
    for amount in amounts:
        result = _EXACT.add(result, Decimal(amount))
    return _text(result)


def is_equal(left: str, right: str) -> bool:
    """Whether two texts mean the same amount ("10" and "10.0" do)."""
    return Decimal(left) == Decimal(right)


def fits(amount: str) -> bool:
    """Whether a message may carry this amount: at most 15 digits before and 4 behind the point."""
    return _AMOUNT.match(amount) is not None


def _text(value: Decimal) -> str:
    return format(value.copy_abs() if value.is_zero() else value, "f")
