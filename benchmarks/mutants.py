"""Mutation testing: which share of a random sample of small faults the tests notice.

Each mutant changes one expression of one module: a comparison, a constant, an operator, a ``not``,
the branches of a conditional expression or the order of two arguments. The tests of the module run
in a copy of the tree, those that mirror it first, and a mutant is killed when one of them fails or
needs more CPU time than any test should. Every test that killed a mutant is then run without a
fault, and must pass. ``equivalent_mutants.toml`` lists mutants that change no behaviour, each with
the reason; they are counted separately. The same seed draws the same mutants from the same source.
``make mutants`` runs it.
"""

from __future__ import annotations

import argparse
import compileall
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

from mutations import Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/cslr")
ROOMS = ("protocol", "runs")
EQUIVALENT = ROOT / "benchmarks/equivalent_mutants.toml"
MANY = 6  # test files that import a module: more are left out, in the order of ``stages_of``
LONGEST = 60.0  # CPU seconds of one test, several times what the longest needs
ALL_TESTS = 900  # CPU seconds of a stage, should a test not stop by itself
DEADLOCK = 3600  # wall seconds: on a busy machine a stage of tests waits long for its turn
NO_TESTS = 5  # the exit code of pytest when every test of a file is marked slow

OUTPUT, NOTES = "output.txt", "failed.txt"  # of pytest, in the copy of the tree

# Integration tests of a room, run after the tests of the module itself.
WHOLE = {
    "protocol": (
        "tests/protocol/test_golden.py",
        "tests/protocol/test_golden_facts.py",
        "tests/protocol/test_round.py",
        "tests/methods/test_method.py",
    ),
    "runs": ("tests/cli/test_main.py", "tests/cli/test_data.py"),
    "methods": ("tests/methods/test_method.py",),
}


def sample(root: Path, rooms: tuple[str, ...], count: int, seed: int) -> list[Mutant]:
    """``count`` mutants of each room, drawn uniformly from all mutants of its source."""
    drawn = []
    for room in rooms:
        everything = [
            mutant
            for path in sorted((root / PACKAGE / room).rglob("*.py"))
            for mutant in mutants_of(
                path.relative_to(root / PACKAGE).as_posix(), path.read_text(encoding="utf-8")
            )
        ]
        chosen = random.Random(f"{seed} {room}").sample(everything, min(count, len(everything)))
        drawn += sorted(chosen, key=lambda each: (each.module, each.start))
    return drawn


# -- which tests see it ----------------------------------------------------------------------------


def stages_of(root: Path, module: str) -> list[list[str]]:
    """Test files of a module: those that mirror it, those that import it, those of the whole."""
    path = Path(module)
    mirrored = sorted((root / "tests" / path.parent).glob(f"test_{path.stem}*.py"))
    dotted = ".".join(("cslr", *path.with_suffix("").parts)).removesuffix(".__init__")
    files = sorted((root / "tests").rglob("test_*.py"))
    named = f"from {dotted} import"
    importing = [
        file
        for file in files
        if "trust" not in file.parts and named in file.read_text(encoding="utf-8")
    ]
    importing.sort(key=lambda file: file.relative_to(root).parts[1] != path.parts[0])
    whole = [root / name for name in WHOLE.get(path.parts[0], ()) if (root / name).exists()]
    stages, met = [], set[Path]()
    for files in (mirrored, importing[:MANY], whole):
        stages.append([str(file.relative_to(root)) for file in files if file not in met])
        met |= set(files)
    return [stage for stage in stages if stage]


# -- running them ----------------------------------------------------------------------------------


def preload() -> None:
    """Import slow libraries once, for all processes that are forked from this one.

    Plugins of pytest are not among them: pytest warns about those it cannot rewrite.
    """
    import matplotlib  # noqa: F401
    import pydantic  # noqa: F401
    import pytest  # noqa: F401
    import scipy.optimize
    import scipy.stats  # noqa: F401
    import sklearn  # noqa: F401
    import torch

    torch.set_num_threads(1)


@dataclass(frozen=True)
class Outcome:
    """How a run of pytest ended."""

    code: int
    """The exit code, negative when a signal ended it."""
    failed: str = ""
    """The test that failed, where one did."""
    late: bool = False
    """Whether it needed too much time."""

    @property
    def noticed(self) -> bool:
        return self.code not in (0, NO_TESTS)


class TooLong(BaseException):
    """A test needs more CPU time than any does without a fault."""


class Watch:
    """A plugin of pytest: limits the CPU time of each test and writes down the first that fails."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes
        notes.unlink(missing_ok=True)
        signal.signal(signal.SIGPROF, self.stop)

    def stop(self, *_: object) -> None:
        raise TooLong

    def pytest_runtest_logstart(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, LONGEST)

    def pytest_runtest_logfinish(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        if not self.notes.exists():
            late = call.excinfo.errisinstance(TooLong)
            self.notes.write_text(f"{node.nodeid}\n{'late' if late else ''}", encoding="utf-8")


def run_tests(tests: list[str]) -> Outcome:
    """Run tests in a child process, in this process's copy of the tree."""
    tree = _tree()
    child = os.fork()
    if child == 0:
        _become_pytest(tree, tests)
    _, status = os.waitpid(child, 0)
    code, notes = os.waitstatus_to_exitcode(status), tree / NOTES
    failed, late = notes.read_text(encoding="utf-8").split("\n") if notes.exists() else ("", "")
    return Outcome(code, failed, bool(late) or code < 0)


def _become_pytest(tree: Path, tests: list[str]) -> None:
    """In a forked process: run pytest and exit, whatever happens."""
    code = 70
    try:
        os.chdir(tree)
        silence = os.open(tree / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.environ |= {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        sys.path[0] = str(tree / "src")
        resource.setrlimit(resource.RLIMIT_CPU, (ALL_TESTS, ALL_TESTS + 5))
        signal.alarm(DEADLOCK)
        import pytest

        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow and not trust"]
        watch = Watch(tree / NOTES)
        code = int(pytest.main([*options, "--hypothesis-seed=0", *tests], plugins=[watch]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def attempt(mutant: Mutant) -> tuple[Mutant, Outcome]:
    """Run the tests of a module with a fault in it, stage by stage until one of them fails."""
    tree = _tree()
    path = tree / PACKAGE / mutant.module
    original = path.read_bytes()
    try:
        path.write_bytes(mutant.applied(original))
        outcome = Outcome(NO_TESTS)
        for stage in stages_of(tree, mutant.module):
            outcome = run_tests(stage)
            if outcome.noticed:
                break
        return mutant, outcome
    finally:
        path.write_bytes(original)


def without_fault(tests: list[str]) -> tuple[Outcome, str]:
    """Run tests that killed a mutant without any fault; the outcome and pytest's output."""
    outcome = run_tests(tests)
    return outcome, (_tree() / OUTPUT).read_text(encoding="utf-8")


def _tree() -> Path:
    """The copy of the tree that belongs to this process, made when first asked for."""
    tree = Path(os.environ["CSLR_MUTANTS"]) / str(os.getpid())
    if not tree.exists():
        listed = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
        for name in subprocess.check_output(listed, cwd=ROOT, text=True).splitlines():
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, tree / name)
        mode = PycInvalidationMode.CHECKED_HASH  # a time stamp would miss a quick change
        compileall.compile_dir(tree / "src", quiet=2, invalidation_mode=mode)
    return tree


# -- the report ------------------------------------------------------------------------------------


def equivalents(root: Path) -> dict[tuple[str, str, str], str]:
    """Why a mutant, by its module and its line without and with it, changes no behaviour.

    Raises ValueError where a listed one cannot be made any more, as its line has changed.
    """
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["mutant"]
    reasons = {(each["module"], each["line"], each["fault"]): each["reason"] for each in listed}
    possible = {
        mutant.key
        for module in {module for module, _, _ in reasons}
        if (root / PACKAGE / module).exists()
        for mutant in mutants_of(module, (root / PACKAGE / module).read_text(encoding="utf-8"))
    }
    stale = [f"{module}: {line}" for module, line, _ in reasons.keys() - possible]
    if stale:
        raise ValueError(f"{EQUIVALENT.name} lists mutants of other source: {'; '.join(stale)}")
    return reasons


def report(trials: list[tuple[Mutant, Outcome]], known: set[tuple[str, str, str]]) -> float:
    """Print the share of mutants that was killed in each room; give the lowest one."""
    shares = []
    for room in dict.fromkeys(mutant.room for mutant, _ in trials):
        mine = [(mutant, outcome) for mutant, outcome in trials if mutant.room == room]
        killed = [outcome for _, outcome in mine if outcome.noticed]
        same = sum(mutant.key in known and not outcome.noticed for mutant, outcome in mine)
        shares.append(len(killed) / max(1, len(mine) - same))
        late = sum(each.late for each in killed)
        print(
            f"{room}: {len(killed)} of {len(mine)} killed, {late} of them by time; "
            f"{same} equivalent; {shares[-1]:.1%} of the others killed"
        )
    return min(shares, default=1.0)


def described(mutant: Mutant, outcome: Outcome, reason: str | None) -> str:
    if outcome.noticed:
        return f"killed: {mutant}  by {outcome.failed or outcome.code}"
    return f"equivalent: {mutant}: {reason}" if reason else f"survived: {mutant}"


def tried(mutants: list[Mutant], workers: int) -> Iterator[tuple[Mutant, Outcome]]:
    """Each mutant with its outcome, as they finish.

    Raises ValueError at the end if a test that killed a mutant fails without any fault.
    """
    # Not multiprocessing.Pool: its workers are daemons, and tests start processes of their own.
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=fork) as pool:
        trials = []
        for trial in pool.map(attempt, mutants):
            trials.append(trial)
            yield trial
        killers = sorted({outcome.failed for _, outcome in trials if "::" in outcome.failed})
        parts = [killers[begin::workers] for begin in range(workers)]
        for outcome, said in pool.map(without_fault, [part for part in parts if part]):
            if outcome.noticed:
                raise ValueError(f"a test that killed a mutant fails without any fault:\n{said}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40, help="mutants of each room")
    parser.add_argument("--rooms", default=",".join(ROOMS), help="such as protocol,runs,privacy")
    parser.add_argument("--only", default="", help="only modules whose path contains this")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--verbose", action="store_true", help="name what killed each mutant")
    parser.add_argument("--share", type=float, default=0.95, help="what each room must reach")
    asked = parser.parse_args()
    started = time.monotonic()
    mutants = sample(ROOT, tuple(asked.rooms.split(",")), asked.count, asked.seed)
    mutants = [mutant for mutant in mutants if asked.only in mutant.module]
    print(f"{len(mutants)} mutants of {len({each.module for each in mutants})} modules", flush=True)
    reasons = equivalents(ROOT)
    preload()
    with tempfile.TemporaryDirectory() as work:
        os.environ["CSLR_MUTANTS"] = work
        if "text" not in asked.rooms:  # where a fault cannot reach what is kept
            os.environ["CSLR_TEST_EMBEDDINGS"] = f"{work}/embeddings"
        trials = []
        for mutant, outcome in tried(mutants, asked.workers):
            trials.append((mutant, outcome))
            told = described(mutant, outcome, reasons.get(mutant.key))
            if not outcome.noticed or asked.verbose:
                print(told, flush=True)
    lowest = report(trials, set(reasons))
    print(f"{time.monotonic() - started:.0f} seconds")
    return int(lowest < asked.share)


if __name__ == "__main__":
    sys.exit(main())
