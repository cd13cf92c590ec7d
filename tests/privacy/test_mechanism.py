"""The last arrow: pay, then noise; the same sum is never paid for twice, nor noised twice."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import textwrap

import mpmath
import numpy as np
import pytest
from scipy import stats

from cslr.errors import BudgetExceeded, LedgerCorrupted
from cslr.privacy import mechanism
from cslr.privacy.accounting import Charge, gaussian_epsilon
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.mechanism import (
    LEAST_SIGMA,
    finish,
    noise_in_steps,
    recall,
    release,
    release_each,
    settle,
)
from cslr.privacy.plan import Budget
from cslr.privacy.values import _SEAL, STEPS, Grid, bound, plain_sum
from cslr.seeding import Seeds

CHARGE = Charge("task 0", 0, "replay", 2.0)
OPEN = Charge("task 0", 0, "replay", None)


class Crash(Exception):
    pass


def crash(*_: object) -> None:
    raise Crash


def kinds(path) -> list[str]:
    return [json.loads(line)["kind"] for line in path.read_text().splitlines()]


# -- the noise -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.3, 2.65])
def test_the_residual_of_a_release_has_the_scale_that_was_charged(sigma):
    """Conformance: σ times the bound, in the units of the bound; 0.5 % either way is noticed."""
    size, grid = 10**6, Grid(0.7)
    vectors = np.random.default_rng(0).normal(size=(1, size))
    summed = plain_sum([bound(vectors, grid)])
    exact = grid.decode(summed.total(_SEAL))
    federation = Federation("study", Budget(1000.0), "simulated")
    ledger = Ledger.in_memory(federation, SeededKeys(Seeds(13)))
    residual = release(summed, Charge("task 0", 0, "replay", sigma), ledger).value - exact
    z = residual / (sigma * grid.bound)
    for factor, honest in ((1.0, True), (0.995, False), (1.005, False)):
        lower = float(stats.chi2.cdf(np.sum((z / factor) ** 2), size))
        assert (1e-3 < lower < 1 - 1e-3) is honest
    assert abs(np.corrcoef(z, exact)[0, 1]) < 4 / math.sqrt(size)


def test_every_coordinate_stays_on_the_grid(opened, summed):
    released = release(summed, CHARGE, opened()).value
    steps = released / summed.grid.bound * summed.grid.steps
    assert np.array_equal(steps, np.round(steps))


def test_the_noise_is_sixteen_square_steps_more_than_the_charge():
    assert noise_in_steps(2.0, STEPS) ** 2 - (2.0 * STEPS) ** 2 == pytest.approx(16, rel=1e-3)


def test_four_steps_are_enough_to_round_at_random():
    """Peikert (2010): the sum over the integers of exp(−(k − y)² / 32) must not depend on y."""
    with mpmath.workdps(200):

        def mass(y: float) -> mpmath.mpf:
            return mpmath.nsum(
                lambda k: mpmath.exp(-((k - y) ** 2) / (2 * mechanism._ROUNDING_VARIANCE)),
                [-200, 200],
            )

        assert abs(mass(0.0) / mass(0.5) - 1) < mpmath.mpf(10) ** -130


def test_each_release_has_noise_of_its_own(opened, summed):
    ledger = opened(epsilon=100.0)
    first, second = (
        release(summed, Charge(label, 0, "replay", 2.0), ledger).value for label in ("a", "b")
    )
    assert np.all(first != second)


@pytest.mark.parametrize("sigma", [1e-3, 0.0039])
def test_noise_too_small_for_the_grid_is_refused_and_not_charged(opened, path, summed, sigma):
    ledger = opened(epsilon=math.inf)
    with pytest.raises(ValueError, match="below the minimum of 4096 grid steps"):
        release(summed, Charge("task 0", 0, "replay", sigma), ledger)
    assert kinds(path) == ["open"]


def test_the_least_noise_is_4096_steps():
    assert noise_in_steps(LEAST_SIGMA / STEPS, STEPS) >= LEAST_SIGMA
    with pytest.raises(ValueError, match="grid steps"):
        noise_in_steps(0.99 * LEAST_SIGMA / STEPS, STEPS)


@pytest.mark.parametrize("sigma", [2.0**20 * 1.01, 1e30])
def test_noise_too_wide_for_the_sampler_is_refused_and_not_charged(opened, path, summed, sigma):
    ledger = opened(epsilon=math.inf)
    with pytest.raises(ValueError, match="above the maximum of 2\\^40 grid steps"):
        release(summed, Charge("task 0", 0, "replay", sigma), ledger)
    assert kinds(path) == ["open"]


@pytest.mark.parametrize("finer", [Grid(2.0, 2**24), Grid(1.0)])
def test_messages_on_two_grids_are_refused_and_not_charged(opened, path, finer):
    """The first one's noise would be too little for a message on a finer grid."""
    answers = [bound(np.ones((1, 3)), grid) for grid in (Grid(2.0), finer)]
    with pytest.raises(ValueError, match="the same grid"):
        release_each(answers, CHARGE, opened())
    assert kinds(path) == ["open"]


def test_messages_of_nobody_are_refused_and_not_charged(opened, path):
    with pytest.raises(ValueError, match="must not be empty"):
        release_each([], CHARGE, opened())
    assert kinds(path) == ["open"]


# -- without noise -------------------------------------------------------------------------------


def test_without_noise_and_with_a_wide_bound_the_release_is_the_plain_mean(opened):
    vectors = np.random.default_rng(2).normal(size=(20, 15))
    grid = Grid(1e3)
    released = release(plain_sum([bound(vectors, grid)]), OPEN, opened(epsilon=math.inf))
    step = grid.bound / grid.steps
    np.testing.assert_allclose(released.value / 20, vectors.mean(axis=0), rtol=0, atol=step)


def test_without_noise_epsilon_is_infinite_and_the_ledger_says_so(opened, summed):
    ledger = opened(epsilon=math.inf)
    release(summed, OPEN, ledger)
    for adversary in ("public", "roster", "server"):
        assert ledger.epsilon("end_to_end", adversary) == math.inf


def test_without_noise_nothing_is_released_under_a_finite_budget(opened, path, summed):
    ledger = opened(epsilon=1e6)
    before = path.read_bytes()
    with pytest.raises(BudgetExceeded, match="ε = inf"):
        release(summed, OPEN, ledger)
    assert path.read_bytes() == before


# -- first the charge, then the noise ------------------------------------------------------------


def test_the_charge_is_on_disk_before_the_noise_is_drawn(opened, path, summed, monkeypatch):
    seen = []
    synced = []
    original = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: original(file) or synced.append(path.read_text()))

    def look(*_: object) -> None:
        seen.append(path.read_text())
        raise Crash

    monkeypatch.setattr(mechanism, "discrete_gaussian", look)
    with pytest.raises(Crash):
        release(summed, CHARGE, opened())
    [content] = seen
    assert json.loads(content.splitlines()[-1])["body"]["label"] == "task 0"
    assert content in synced  # not merely handed to the operating system


def test_the_key_is_on_disk_before_the_charge(opened, keys, summed, monkeypatch):
    ledger = opened()
    monkeypatch.setattr(ledger._chain, "append", crash)
    with pytest.raises(Crash):
        release(summed, CHARGE, ledger)
    assert len(list(keys.directory.iterdir())) == 1


def interrupted(ledger: Ledger, summed, monkeypatch, charge: Charge = CHARGE) -> np.ndarray:
    """A release that dies after its noise was drawn; what it would have been."""
    drawn = []
    with monkeypatch.context() as patch:
        original = mechanism.discrete_gaussian

        def draw(*args):
            drawn.append(original(*args))
            raise Crash

        patch.setattr(mechanism, "discrete_gaussian", draw)
        with pytest.raises(Crash):
            release(summed, charge, ledger)
    return summed.grid.decode(summed.total(_SEAL) + drawn[0])


def test_an_interrupted_release_is_finished_from_what_was_kept_at_no_cost(
    opened, path, summed, monkeypatch
):
    """No sum is handed over again: what clients would say by now plays no part."""
    lost = interrupted(opened(), summed, monkeypatch)
    charged = path.read_bytes()
    again = finish(CHARGE, opened())
    assert again.value.tolist() == lost.tolist()
    assert path.read_bytes() == charged


def test_messages_under_names_are_finished_with_their_names(opened, path, monkeypatch):
    answers = [bound(np.eye(3), Grid(2.0))]
    expected = []
    with monkeypatch.context() as patch:
        original = mechanism.Released

        def last(value, seal):
            expected.append(value)
            raise Crash

        patch.setattr(mechanism, "Released", last)
        with pytest.raises(Crash):
            release_each(answers, CHARGE, opened(), (7, 3, 5))
        assert mechanism.Released is not original
    again = finish(CHARGE, opened()).value
    assert again.tolist() == expected[0].tolist()
    assert again[:, 0].tolist() == [7, 3, 5]
    assert kinds(path) == ["open", "charge"]


def test_nothing_is_finished_that_was_not_charged_or_is_settled(opened, summed):
    ledger = opened()
    assert finish(CHARGE, ledger) is None
    released = release(summed, CHARGE, ledger)
    settle(released, "task 0", ledger)
    assert finish(CHARGE, ledger) is None


def test_what_was_kept_goes_with_the_key(opened, keys, summed):
    ledger = opened()
    released = release(summed, CHARGE, ledger)
    [file] = keys.directory.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(file.read_bytes()) > 32 + 8 * 40
    settle(released, "task 0", ledger)
    assert list(keys.directory.iterdir()) == []


def test_a_simulation_draws_the_noise_of_seed_and_release_whatever_the_sum(summed, other):
    """Machines whose embeddings differ in the last bit draw the same noise."""
    noise = []
    for total in (summed, other):
        federation = Federation("study", Budget(8.0), "simulated")
        ledger = Ledger.in_memory(federation, SeededKeys(Seeds(13)))
        released = release(total, CHARGE, ledger).value
        noise.append(released - total.grid.decode(total.total(_SEAL)))
    np.testing.assert_allclose(*noise, atol=1e-9)


def test_another_sum_after_a_crash_is_another_release(opened, path, summed, other, monkeypatch):
    lost = interrupted(opened(), summed, monkeypatch)
    ledger = opened()
    released = release(other, CHARGE, ledger)
    assert kinds(path) == ["open", "charge", "charge"]
    expected = gaussian_epsilon(math.sqrt(2) / 2.0, 1e-5)
    assert ledger.epsilon("end_to_end", "roster") == pytest.approx(expected)
    # The difference of the two is not the difference of the sums.
    difference = lost - released.value
    assert np.all(difference != summed.grid.decode(summed.total(_SEAL) - other.total(_SEAL)))


@pytest.mark.parametrize(
    "charge", [Charge("task 0", 0, "replay", 2.1), Charge("task 0", 0, "replay", 2.0, 0.5)]
)
def test_the_same_sum_at_another_cost_is_another_release(opened, path, summed, monkeypatch, charge):
    interrupted(opened(), summed, monkeypatch)
    ledger = opened()
    if charge.q != CHARGE.q:  # one round cannot have two rates
        charge = Charge("task 0", 1, "replay", charge.sigma, charge.q)
    release(summed, charge, ledger)
    assert kinds(path) == ["open", "charge", "charge"]


def test_the_same_sum_under_another_label_is_another_release(opened, path, summed, monkeypatch):
    lost = interrupted(opened(), summed, monkeypatch)
    released = release(summed, Charge("task 1", 1, "replay", 2.0), opened())
    assert kinds(path) == ["open", "charge", "charge"]
    assert np.all(lost != released.value)


DAMAGED = {"cut off": 100, "key alone": 32}


@pytest.mark.parametrize("damage", ["unlink", "foreign key", "another sum", *DAMAGED])
def test_a_lost_or_damaged_key_means_paying_again(opened, path, keys, summed, monkeypatch, damage):
    lost = interrupted(opened(), summed, monkeypatch)
    [file] = keys.directory.iterdir()
    content = bytearray(file.read_bytes())
    if damage == "foreign key":
        content[:32] = bytes(32)
    elif damage == "another sum":
        content[len(content) // 2] ^= 1
    file.unlink() if damage == "unlink" else file.write_bytes(content[: DAMAGED.get(damage)])
    ledger = opened()
    assert finish(CHARGE, ledger) is None
    released = release(summed, CHARGE, ledger)
    assert kinds(path) == ["open", "charge", "charge"]
    assert np.all(lost != released.value)


def test_a_settled_release_is_not_repeated_for_free(opened, path, summed):
    ledger = opened()
    first = release(summed, CHARGE, ledger)
    settle(first, "task 0", ledger)
    second = release(summed, CHARGE, ledger)
    assert kinds(path) == ["open", "charge", "settled", "charge"]
    assert np.all(first.value != second.value)


def test_a_killed_process_is_charged_once_and_finds_its_noise_again(opened, path, keys, summed):
    """kill −9 between the charge and the release."""
    program = f"""
        import os, signal
        from pathlib import Path
        import numpy as np
        from cslr.privacy import mechanism
        from cslr.privacy.accounting import Charge
        from cslr.privacy.values import Grid, bound
        from cslr.privacy.ledger.records import EphemeralKeys
        from cslr.privacy.ledger.book import Federation, Ledger
        from cslr.privacy.plan import Budget
        from cslr.privacy.values import plain_sum

        def die(scale, size, stream):
            noise = original(scale, size, stream)
            print(*noise.tolist(), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        original, mechanism.discrete_gaussian = mechanism.discrete_gaussian, die
        federation = Federation("clinics", Budget(8.0), "enforced")
        ledger = Ledger.at(Path({str(path)!r}), federation, EphemeralKeys(Path({str(keys.directory)!r})))
        summed = plain_sum([bound(np.tile(np.linspace(-0.3, 0.3, 40), (3, 1)), Grid(2.0))])
        mechanism.release(summed, Charge("task 0", 0, "replay", 2.0), ledger)
    """  # noqa: E501
    died = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    noise = np.array(died.stdout.split(), dtype=np.int64)
    released = finish(CHARGE, opened())
    assert kinds(path) == ["open", "charge"]
    expected = summed.grid.decode(summed.total(_SEAL) + noise)
    assert released.value.tolist() == expected.tolist()


# -- reading a release back ----------------------------------------------------------------------


def test_a_kept_release_is_read_back_for_free(opened, path, summed):
    ledger = opened()
    released = release(summed, CHARGE, ledger)
    settle(released, "task 0", ledger)
    before = path.read_bytes()
    assert recall(released.value.copy(), "task 0", opened()).value.tolist() == (
        released.value.tolist()
    )
    assert path.read_bytes() == before


def test_a_vector_that_was_never_paid_for_is_refused(opened, path):
    ledger = opened()
    before = path.read_bytes()
    with pytest.raises(LedgerCorrupted, match="'task 0' has no charge"):
        recall(np.ones(3), "task 0", ledger)
    assert path.read_bytes() == before


@pytest.mark.parametrize("change", ["last bit", "sign", "length", "order"])
def test_an_altered_vector_is_refused(opened, summed, change):
    ledger = opened()
    released = release(summed, CHARGE, ledger)
    settle(released, "task 0", ledger)
    vector = released.value.copy()
    if change == "last bit":
        vector[3] = np.nextafter(vector[3], np.inf)
    altered = {
        "last bit": vector,
        "sign": -vector,
        "length": vector[:-1],
        "order": vector[::-1],
    }[change]
    with pytest.raises(LedgerCorrupted, match="differs from the one that was recorded"):
        recall(altered, "task 0", ledger)


def test_the_release_of_one_task_does_not_pass_for_another(opened, summed):
    ledger = opened()
    for label, round_ in (("task 0", 0), ("task 1", 1)):
        released = release(summed, Charge(label, round_, "replay", 3.0), ledger)
        settle(released, label, ledger)
    with pytest.raises(LedgerCorrupted, match="'task 0' differs from the one"):
        recall(released.value, "task 0", ledger)


@pytest.mark.parametrize("earlier_runs", [0, 1])
def test_a_crash_between_keeping_and_settling_is_settled_when_read_back(
    opened, path, keys, summed, earlier_runs
):
    ledger = opened(epsilon=100.0)
    for _ in range(earlier_runs):
        settle(release(summed, CHARGE, ledger), "task 0", ledger)
    kept = release(summed, CHARGE, ledger).value
    ledger = opened(epsilon=100.0)
    assert recall(kept, "task 0", ledger).value.tolist() == kept.tolist()
    assert kinds(path) == ["open", *["charge", "settled"] * (earlier_runs + 1)]
    assert list(keys.directory.iterdir()) == []
    with pytest.raises(LedgerCorrupted, match="differs from the one"):
        recall(kept + 1, "task 0", ledger)


def test_a_release_of_no_coordinates_is_charged_like_any_other(opened, path):
    released = release(plain_sum([bound(np.zeros((2, 0)), Grid(1.0))]), CHARGE, opened())
    assert released.value.shape == (0,)
    assert kinds(path) == ["open", "charge"]
