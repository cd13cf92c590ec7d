"""Eight processes race for a budget that admits three releases; some are killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from cslr.privacy.accounting import gaussian_epsilon
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.plan import Budget, calibrate

pytestmark = pytest.mark.trust

PROCESSES, ADMITTED, EPSILON = 8, 3, 8.0
Card = Callable[[str, str, str, bool], None]

PROGRAM = textwrap.dedent(
    """
    import os, signal, sys, time
    from pathlib import Path
    from cslr.errors import BudgetExceeded, PrivacyError
    from cslr.privacy.accounting import Charge
    from cslr.privacy.ledger.records import EphemeralKeys
    from cslr.privacy.ledger.book import Federation, Ledger
    from cslr.privacy.plan import Budget

    directory, name, sigma, mortal = Path(sys.argv[1]), *sys.argv[2:5]
    federation = Federation("clinics", Budget(8.0), "enforced")
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(4):
        while True:
            try:
                ledger = Ledger.at(
                    directory / "ledger.jsonl", federation, EphemeralKeys(directory / "keys")
                )
                break
            except PrivacyError as error:
                if "in use by another process" not in str(error):
                    raise
                time.sleep(0.001)
        label = f"{name} turn {turn}"
        try:
            ledger.charge(Charge(label, int(name) * 10 + turn, "replay", float(sigma)), lambda key: label)
        except BudgetExceeded:
            print("refused", flush=True)
        else:
            print("released", flush=True)
            if mortal == "mortal":
                os.kill(os.getpid(), signal.SIGKILL)
            ledger.settle(label, "digest")
        ledger.close()
    """  # noqa: E501
)


def race(directory: Path, mortal: bool) -> tuple[int, int, list[int]]:
    """Releases, refusals and exit codes of processes that all start at once."""
    sigma = calibrate(Budget(EPSILON), ADMITTED).sigma
    how = "mortal" if mortal else "careful"
    runners = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(directory), str(number), repr(sigma), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        for number in range(PROCESSES)
    ]
    for runner in runners:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "ready\n"
    said = []
    for runner in runners:
        assert runner.stdin is not None
        runner.stdin.write("go\n")
        runner.stdin.flush()
    for runner in runners:
        said += runner.communicate(timeout=120)[0].split()
    return said.count("released"), said.count("refused"), [r.returncode for r in runners]


@pytest.mark.parametrize("mortal", [False, True], ids=["careful", "killed"])
def test_processes_that_race_for_a_budget_never_overspend_it(
    tmp_path: Path, card: Card, mortal: bool
):
    released, refused, codes = race(tmp_path, mortal)
    ledger = Ledger.read(tmp_path / "ledger.jsonl")
    spent = ledger.epsilon("end_to_end", "roster")
    sigma = calibrate(Budget(EPSILON), ADMITTED).sigma
    exact = gaussian_epsilon(ADMITTED**0.5 / sigma, 1e-5)
    holds = released == len(ledger.charges) == ADMITTED and spent <= EPSILON
    card(
        f"{PROCESSES} processes race for {ADMITTED} releases" + (", killed when paid" * mortal),
        f"{ADMITTED} released, ε ≤ {EPSILON:g}",
        f"{released} released, {refused} refused, ε = {spent:.4f}",
        holds,
    )
    assert released == len(ledger.charges) == ADMITTED
    assert spent == pytest.approx(exact)
    assert spent <= EPSILON
    if mortal:
        assert codes.count(-signal.SIGKILL) == ADMITTED
        assert len(ledger.unsettled) == ADMITTED
    else:
        assert set(codes) == {0}
        assert refused == 4 * PROCESSES - ADMITTED
        assert list((tmp_path / "keys").iterdir()) == []
