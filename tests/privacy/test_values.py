"""The ladder as types: what would break the proof does not type-check."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cslr.privacy.accounting import Charge
from cslr.privacy.mechanism import release
from cslr.privacy.values import Released, Summed, gather

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "cslr"
LIFTERS = {
    "privacy/mechanism.py",
    "privacy/secure_sum/client.py",
    "privacy/secure_sum/server.py",
}

PROGRAM = """
from __future__ import annotations

import numpy as np

from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.mechanism import publish, recall, release, settle
from cslr.privacy.values import Bounded, Grid, Noised, Released, Summed, bound, gather, plain_sum
from cslr.arrays import FloatArray


def server(vector: Released[FloatArray]) -> Released[float]:
    return vector.map(lambda values: float(values.sum()))


def honest(raw: FloatArray, grid: Grid, charge: Charge, ledger: Ledger) -> Released[float]:
    noisy = release(plain_sum([bound(raw, grid)]), charge, ledger)
    settle(noisy, charge.label, ledger)
    both = gather([noisy, recall(noisy.value, charge.label, ledger)])
    return server(both.map(lambda pair: pair[0] + pair[1]))


def noise_before_the_sum(bounded: Bounded, charge: Charge, ledger: Ledger) -> None:
    release(bounded, charge, ledger)  # expect: arg-type


def release_of_the_raw(raw: FloatArray, charge: Charge, ledger: Ledger) -> None:
    release(raw, charge, ledger)  # expect: arg-type


def federated(noised: Noised, charge: Charge, ledger: Ledger) -> Released[float]:
    return server(publish(noised, charge, ledger))


def publish_without_noise(summed: Summed, charge: Charge, ledger: Ledger) -> None:
    publish(summed, charge, ledger)  # expect: arg-type


def noise_twice(noised: Noised, charge: Charge, ledger: Ledger) -> None:
    release(noised, charge, ledger)  # expect: arg-type


def read_before_it_is_paid_for(noised: Noised) -> None:
    server(noised)  # expect: arg-type
    noised.value  # expect: attr-defined
    noised.total()  # expect: call-arg


def release_without_a_charge(summed: Summed, ledger: Ledger) -> None:
    release(summed, ledger=ledger)  # expect: call-arg


def sum_of_the_unclipped(raw: FloatArray) -> None:
    plain_sum([raw])  # expect: list-item


def sum_of_sums(summed: Summed) -> None:
    plain_sum([summed])  # expect: list-item


def the_server_is_given(raw: FloatArray, bounded: Bounded, summed: Summed) -> None:
    server(raw)  # expect: arg-type
    server(bounded)  # expect: arg-type
    server(summed)  # expect: arg-type
    gather([summed])  # expect: arg-type


def the_sum_is_read(summed: Summed) -> None:
    summed + 1  # expect: operator
    summed[0]  # expect: index
    np.add(summed, 1)  # expect: call-overload
    summed.value  # expect: attr-defined
    summed.total()  # expect: call-arg


def a_row_is_read(bounded: Bounded) -> None:
    bounded.rows()  # expect: call-arg
    bounded.rows(object())  # expect: arg-type


def a_value_is_forged(raw: FloatArray, grid: Grid) -> None:
    Released(raw)  # expect: call-arg
    Summed(raw.astype(np.int64), grid, None)  # expect: arg-type
    Bounded(raw.astype(np.int64), grid)  # expect: call-arg
    Noised(raw.astype(np.int64), grid, 1.0, 1.0, (0,))  # expect: call-arg


class Loose(Summed):  # expect: misc
    pass
"""


def mentions(pattern: str) -> set[str]:
    return {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if re.search(pattern, file.read_text(encoding="utf-8"))
    }


def test_the_seal_is_held_by_the_arrows_alone():
    assert mentions(r"\b_SEAL\b") == {"privacy/values.py", *LIFTERS}
    assert mentions(r"\b_Seal\b") == {"privacy/values.py"}


def test_each_arrow_exists_in_one_place():
    here = "privacy/values.py"
    assert mentions(r"(?<!class )\bBounded\(") == {here}
    assert mentions(r"(?<!class )\bSummed\(") == {here}
    assert mentions(r"(?<!class )\bNoised\(") == {"privacy/secure_sum/server.py"}
    # Post-processing gives Released again, from Released alone.
    assert mentions(r"(?<!class )\bReleased\((?!Generic)") == {here, "privacy/mechanism.py"}


def test_nobody_reaches_for_the_hidden_fields():
    assert mentions(r"\._rows\b|\._total\b") == {"privacy/values.py"}


def test_what_would_break_the_proof_does_not_type_check(tmp_path):
    """One mypy run: exactly the marked lines are refused, each for the reason it names."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    # With the project's settings and cache, where linting leaves the package and numpy's stubs.
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(file)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    refused = {
        (int(line), code)
        for line, code in re.findall(
            r"^.*program\.py:(\d+): error: .*\[([a-z-]+)\]$", result.stdout, re.MULTILINE
        )
    }
    expected = {
        (number, line.split("# expect: ")[1])
        for number, line in enumerate(PROGRAM.splitlines(), start=1)
        if "# expect: " in line
    }
    assert refused == expected, result.stdout + result.stderr
    assert len(expected) > 15


# -- the values themselves -----------------------------------------------------------------------


@pytest.fixture
def released(opened, summed) -> Released[np.ndarray]:
    return release(summed, Charge("task 0", 0, "replay", 2.0), opened())


def test_post_processing_is_free(released, path):
    before = path.read_bytes()
    twice = released.map(lambda vector: 2 * vector).map(np.sum)
    assert twice.value == np.sum(2 * released.value)
    assert path.read_bytes() == before


def test_gathered_values_keep_their_order(released):
    doubled = released.map(lambda vector: 2 * vector)
    first, second = gather([released, doubled]).value
    assert first is released.value
    assert second is doubled.value
    assert gather([]).value == ()


def test_a_sum_cannot_be_read_by_accident(summed):
    with pytest.raises(TypeError, match="unsupported operand"):
        summed + 1
    with pytest.raises(TypeError, match="not subscriptable"):
        summed[0]
    with pytest.raises(TypeError, match="not iterable"):
        list(summed)
    with pytest.raises(TypeError, match="seal"):
        summed.total()
    with pytest.raises(AttributeError, match="value"):
        summed.value = 1


def test_a_sum_shows_nothing_when_printed(summed):
    assert re.fullmatch(r"<cslr\.privacy\.values\.Summed object at 0x[0-9a-f]+>", repr(summed))
    assert isinstance(summed, Summed)
