"""The secure sum: members that leave, a server that lies, noise that must suffice."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from cslr.privacy.mechanism import noise_in_steps
from cslr.privacy.noise_shares import draw_share, share_scale
from cslr.privacy.secure_sum import checks, intake, masks
from cslr.privacy.values import STEPS
from tests.privacy.secure_sum.test_dropouts import run_every_pattern, run_random

pytestmark = pytest.mark.trust

ROOT = Path(__file__).resolve().parents[2]
SESSIONS = "tests/privacy/secure_sum/test_client.py"
MACHINES = "tests/federation/parties/test_hostile_server.py"
BUNDLES = "tests/federation/flower/test_processes.py"
TWELVE = {
    "the same id as alive and as dropped": "test_1_",
    "duplicate ids": "test_2_",
    "fewer than t alive": "test_3_",
    "a shrinking set between phases": "test_4_",
    "different sets to different clients": "test_5_",
    "a peer key substituted": "test_6_",
    "a replayed round": "test_7_",
    "a ciphertext swapped between peers": "test_8_",
    "its own key changed": "test_9_",
    "an unknown id": "test_10_",
    "a second unmask request": "test_11_",
    "n < 3": "test_12_",
}
MORE = {
    "a split view of the survivors": "test_consents_are_for_one_session_one_release_and_one_set",
    "one noise share in two sessions": "test_one_noise_share_is_refused_in_a_second_session",
    "t, c or n lowered": "test_lowered_terms_are_refused",
    "σ, label, size or grid changed": "test_another_sigma_label_size_or_grid_is_refused",
    "endless aborts": "test_endless_aborts_stop_at_the_number_of_sessions_allowed",
    "a session that was given up": "test_a_session_that_was_given_up_is_never_unmasked",
    "phases skipped": "test_phases_cannot_be_skipped",
    "a node's own σ overridden": "test_a_lower_sigma_is_refused_and_costs_nothing",
    "another agreement than the pinned one": "test_another_agreement_than_the_pinned_one",
    "a charter that promises too much": "test_a_charter_that_promises_more_than_its_noise_gives",
    "a foreign app bundle": "test_flowers_commands_never_run_what_a_server_ships",
}
NUMBERS = [(5, 3, 1), (5, 4, 1), (20, 14, 4), (100, 67, 10)]
"""n, t, c."""
SIGMA, DRAWS = 1.45, 200_000


@pytest.fixture
def remembered_signatures(monkeypatch):
    """Members check the same signatures: here each is checked once, with one result."""
    once = functools.lru_cache(maxsize=100_000)(masks.verifies)
    for module in (checks, intake):
        monkeypatch.setattr(module, "verifies", once)


@pytest.mark.usefixtures("remembered_signatures")
def test_members_that_leave_in_any_pattern_leave_an_exact_sum_or_a_clean_end(card):
    name, target = "dropouts, all patterns of n = 5, t = 3", "3,125 exact or cleanly aborted"
    try:
        found = run_every_pattern()
    except BaseException:
        card(name, target, "a pattern is neither", False)
        raise
    figure = f"{found['exact']:,} exact, {found['aborted']:,} aborted"
    card(name, target, figure, sum(found.values()) == 5**5)
    assert sum(found.values()) == 5**5


@pytest.mark.usefixtures("remembered_signatures")
def test_a_thousand_random_patterns_leave_an_exact_sum_or_a_clean_end(card):
    name = "dropouts, random patterns of n = 20, t = 14, up to 30 % lost"
    try:
        found = run_random(1000, seed=5)
    except BaseException:
        card(name, "1,000 exact or cleanly aborted", "a pattern is neither", False)
        raise
    figure = f"{found['exact']:,} exact, {found['aborted']:,} aborted"
    holds = sum(found.values()) == 1000 and min(found.values()) > 50
    card(name, "1,000 exact or cleanly aborted", figure, holds)
    assert holds


def refused_moves(tmp_path: Path) -> tuple[set[str], set[str], int]:
    """The moves, of both lists, whose tests there are and all pass; and the number of tests."""
    report = tmp_path / "moves.xml"
    chosen = " or ".join([*TWELVE.values(), *MORE.values()])
    options = ["-n", "0", "-q", "-m", "slow or not slow", "-k", chosen, f"--junitxml={report}"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, SESSIONS, MACHINES, BUNDLES],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if "XDIST" not in name},
        check=False,
        capture_output=True,
    )
    passed: dict[str, bool] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        passed[str(case.get("name"))] = len(case) == 0

    def held(moves: dict[str, str]) -> set[str]:
        found = {}
        for move, start in moves.items():
            mine = [fine for name, fine in passed.items() if name.startswith(start)]
            found[move] = bool(mine) and all(mine)
        return {move for move, fine in found.items() if fine}

    counted = [name for name in passed if name.startswith((*TWELVE.values(), *MORE.values()))]
    return held(TWELVE), held(MORE), len(counted)


def test_a_client_refuses_every_move_of_a_hostile_server(card, tmp_path):
    twelve, more, count = refused_moves(tmp_path)
    figure = (
        f"{len(twelve)} of {len(TWELVE)}, and {len(more)} of {len(MORE)} further; {count} tests"
    )
    holds = len(twelve) == len(TWELVE) and len(more) == len(MORE)
    card("hostile server, moves refused by the client", "12 of 12", figure, holds)
    assert twelve == set(TWELVE)
    assert more == set(MORE)


def test_the_noise_in_a_sum_is_at_least_the_claimed_for_every_number_of_survivors(card):
    """Measured on drawn shares, less those of c colluders, against the variance that is charged."""
    low = stats.chi2.ppf(1e-7, DRAWS) / DRAWS
    ratios = []
    for n, t, c in NUMBERS:
        scale, claimed = share_scale(SIGMA, STEPS, t, c), noise_in_steps(SIGMA, STEPS)
        total = np.zeros(DRAWS)
        for honest in range(1, n - c + 1):
            total += draw_share(scale, DRAWS, os.urandom(32))
            if honest >= t - c:
                ratios.append(float((total**2).mean()) / claimed**2)
    holds = min(ratios) > low
    card(
        "noise in a secure sum, without that of c colluders",
        f"≥ the claimed for every number of survivors (≥ {low:.3f} measured)",
        f"{len(ratios)} numbers of survivors, {min(ratios):.3f} to {max(ratios):.2f} × the "
        "claimed variance",
        holds,
    )
    assert holds
