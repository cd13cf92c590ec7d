"""A root of a function of one number.

Reference: Brent, "Algorithms for minimization without derivatives", 1973, chapter 4. Numbers and
their order are those of ``scipy.optimize.brentq``, so the roots are the same bit for bit, and
nothing of ``scipy.optimize`` is loaded, which takes longer than planning a budget does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["brentq"]

RELATIVE: Final = 4 * 2.0**-52
"""Tolerance relative to the root; the smallest that rounding allows."""
MOST: Final = 100
"""Steps before giving up: bisection alone needs 64 or so."""


def brentq(f: Callable[[float], float], low: float, high: float, xtol: float = 2e-12) -> float:
    """Where f is zero between two places where its signs differ, within xtol.

    ``best`` is the best place so far, ``before`` the one before it and ``across`` a place of the
    other sign; every step is interpolated where that is shorter than bisecting would be soon.
    """
    before, best = float(low), float(high)
    f_before, f_best = f(before), f(best)
    if f_before == 0:
        return before
    if f_best == 0:
        return best
    if (f_before < 0) == (f_best < 0):
        raise ValueError(f"f({low}) and f({high}) must have different signs")
    across, f_across, last, step = 0.0, 0.0, 0.0, 0.0
    for _ in range(MOST):
        if f_before != 0 and (f_before < 0) != (f_best < 0):
            across, f_across = before, f_before
            last = step = best - before
        if abs(f_across) < abs(f_best):
            before, best, across = best, across, best
            f_before, f_best, f_across = f_best, f_across, f_best
        tolerance = (xtol + RELATIVE * abs(best)) / 2
        half = (across - best) / 2
        if f_best == 0 or abs(half) < tolerance:
            return best
        tried = None
        if abs(last) > tolerance and abs(f_best) < abs(f_before):
            tried = _interpolated((before, f_before), (best, f_best), (across, f_across))
        if tried is not None and 2 * abs(tried) < min(abs(last), 3 * abs(half) - tolerance):
            last, step = step, tried
        else:
            last = step = half
        before, f_before = best, f_best
        best += step if abs(step) > tolerance else (tolerance if half > 0 else -tolerance)
        f_best = f(best)
    raise ValueError(f"no root of f was found in {MOST} steps")


def _interpolated(
    before: tuple[float, float], best: tuple[float, float], across: tuple[float, float]
) -> float:
    """The step from ``best`` to the zero of the line through two places, or a curve through three.

    Places are pairs (x, f(x)).
    """
    (x0, f0), (x, f), (x1, f1) = before, best, across
    if x0 == x1:
        return -f * (x - x0) / (f - f0)
    slope0, slope1 = (f0 - f) / (x0 - x), (f1 - f) / (x1 - x)
    return -f * (f1 * slope1 - f0 * slope0) / (slope1 * slope0 * (f1 - f0))
