"""How an entry of a table is printed, and that missing seeds are marked."""

from __future__ import annotations

import math

import pytest

from cslr.config import Config
from paper.figure import NOT_RUN, UNDEFINED, Figure, number
from paper.names import called, key_of, measure_named, setting_of

SEEDS = (13, 17, 19)


def figure(values: tuple[float, ...], measure: str = "aa") -> Figure:
    return Figure(measure_named(measure), dict(zip(SEEDS, values, strict=False)), SEEDS)


@pytest.mark.parametrize(
    ("values", "measure", "text"),
    [
        ((80.0, 81.0, 82.0), "aa", "81.0 ± 1.0"),
        ((-9.96, -10.0, -10.04), "bwt", "-10.0 ± 0.0"),
        ((80.0, 82.0), "aa", "81.0 ± 1.4 (2 of 3 seeds)"),
        ((80.0,), "aa", "80.0 (1 of 3 seeds)"),
        ((), "aa", NOT_RUN),
        ((80.0, math.nan, 82.0), "aa", UNDEFINED),
        ((4.0, 4.0, 4.0), "epsilon", "4.00"),
        ((3.9, 4.0, 4.1), "epsilon", "3.90–4.10"),
        ((math.inf,) * 3, "epsilon", "∞"),
        ((0.25, 0.25, 0.25), "hit_rate", "0.25 ± 0.00"),
    ],
)
def test_a_figure_in_words(values, measure, text):
    assert figure(values, measure).text == text


def test_zero_has_no_sign():
    assert number(-0.04, 1) == "0.0"
    assert number(-0.06, 1) == "-0.1"
    assert (number(math.inf, 1), number(-math.inf, 1)) == ("∞", "-∞")


def test_settings_are_found_by_dotted_name():
    config = Config(seeds=(17,))
    assert setting_of(config, "privacy.epsilon") == 8.0
    assert setting_of(config, "seed") == 17
    with pytest.raises(AttributeError, match="sigma"):
        setting_of(config, "privacy.sigma")


@pytest.mark.parametrize(
    ("setting", "value", "shown"),
    [
        ("method", "cslr-hungarian", "CSLR-Hungarian"),
        ("method", "new-one", "new-one"),
        ("privacy.epsilon", 4.0, "ε = 4"),
        ("privacy.epsilon", math.inf, "ε = ∞"),
        ("paper.m", 100, "m = 100"),
        ("replay.matcher", None, "default"),
        ("value", "aa", "AA, %"),
        ("value", "macro_f1", "macro f1, %"),
    ],
)
def test_values_have_names_a_reader_knows(setting, value, shown):
    assert called(setting, key_of(value)) == shown
