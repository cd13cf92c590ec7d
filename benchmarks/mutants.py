"""How much of a random sample of small faults the tests notice: ``make mutants``.

Each mutant changes one expression of one module: a comparison, a constant, an operator, a ``not``,
the branches of a conditional expression or the order of two arguments. The tests that mirror the
module or import it run in a copy of the tree, and a mutant is killed when one of them fails or
when they need several times their usual time. The same seed draws the same mutants from the same
source.
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
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

from mutations import Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/cslr")
ROOMS = ("protocol", "runs")
MANY = 6  # test files that import a module: more are left out, in the order of ``tests_of``
PATIENCE = 4.0  # times the usual CPU time of the tests
GRACE = 20.0  # CPU seconds besides
DEADLOCK = 900  # wall seconds
NO_TESTS = 5  # the exit code of pytest when every test of a file is marked slow

# Tests of a whole that see what a module of a room does, after its own tests.
WHOLE = {
    "protocol": (
        "tests/protocol/test_golden.py",
        "tests/protocol/test_round.py",
        "tests/methods/test_method.py",
    ),
    "runs": ("tests/cli/test_main.py", "tests/cli/test_data.py"),
    "methods": ("tests/methods/test_method.py",),
}


def sample(root: Path, rooms: tuple[str, ...], count: int, seed: int) -> list[Mutant]:
    """``count`` mutants of each room, every place of its source as likely as any other."""
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


def tests_of(root: Path, module: str) -> list[str]:
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
    found = [str(file.relative_to(root)) for file in [*mirrored, *importing[:MANY]]]
    found += [name for name in WHOLE.get(path.parts[0], ()) if (root / name).exists()]
    return list(dict.fromkeys(found))


# -- running them ----------------------------------------------------------------------------------


def preload() -> None:
    """Import what takes seconds once, for all processes that are forked from this one.

    No plugin of pytest is among it: pytest warns of those it cannot rewrite.
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
    seconds: float
    """CPU time."""

    @property
    def noticed(self) -> bool:
        return self.code not in (0, NO_TESTS)


def run_tests(tests: list[str], limit: float) -> Outcome:
    """Run test files in this process's own copy of the tree, in a process of their own."""
    tree = _tree()
    child = os.fork()
    if child == 0:
        _become_pytest(tree, tests, limit)
    _, status, used = os.wait4(child, 0)
    return Outcome(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime)


def _become_pytest(tree: Path, tests: list[str], limit: float) -> None:
    """In a forked process: run and leave, whatever happens."""
    code = 70
    try:
        os.chdir(tree)
        silence = os.open(tree / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.environ |= {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        sys.path[0] = str(tree / "src")
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
        signal.alarm(DEADLOCK)
        import pytest

        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow and not trust"]
        code = int(pytest.main([*options, "--hypothesis-seed=0", *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def usual(test: str) -> tuple[str, Outcome]:
    """What a test file does without any fault; what it says is shown when it fails."""
    outcome = run_tests([test], float(DEADLOCK))
    if outcome.noticed:
        print((_tree() / "output.txt").read_text(encoding="utf-8"), flush=True)
    return test, outcome


def attempt(job: tuple[Mutant, float]) -> tuple[Mutant, Outcome]:
    """What the tests of a module do with a fault in it, within so many CPU seconds."""
    (mutant, limit), tree = job, _tree()
    path = tree / PACKAGE / mutant.module
    original = path.read_bytes()
    try:
        path.write_bytes(mutant.applied(original))
        return mutant, run_tests(tests_of(tree, mutant.module), limit)
    finally:
        path.write_bytes(original)


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


def report(trials: list[tuple[Mutant, Outcome]]) -> float:
    """Print the share that was killed in each room; give the lowest one."""
    shares = []
    for room in dict.fromkeys(mutant.room for mutant, _ in trials):
        mine = [outcome for mutant, outcome in trials if mutant.room == room]
        killed, late = sum(each.noticed for each in mine), sum(each.code < 0 for each in mine)
        shares.append(killed / len(mine))
        print(f"{room}: {killed} of {len(mine)} killed ({shares[-1]:.0%}), {late} of them by time")
    return min(shares, default=1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40, help="mutants of each room")
    parser.add_argument("--rooms", default=",".join(ROOMS), help="such as protocol,runs,privacy")
    parser.add_argument("--only", default="", help="only modules whose path contains this")
    parser.add_argument("--share", type=float, default=0.95, help="what each room must reach")
    asked = parser.parse_args()
    started = time.monotonic()
    mutants = sample(ROOT, tuple(asked.rooms.split(",")), asked.count, asked.seed)
    mutants = [mutant for mutant in mutants if asked.only in mutant.module]
    tests = {mutant.module: tests_of(ROOT, mutant.module) for mutant in mutants}
    files = list(dict.fromkeys(test for found in tests.values() for test in found))
    print(f"{len(mutants)} mutants of {len(tests)} modules, {len(files)} test files", flush=True)
    preload()
    with tempfile.TemporaryDirectory() as work:
        os.environ["CSLR_MUTANTS"] = work
        if "text" not in asked.rooms:  # where a fault cannot reach what is kept
            os.environ["CSLR_TEST_EMBEDDINGS"] = f"{work}/embeddings"
        # Not multiprocessing.Pool: its workers are daemons, and tests start processes of their own.
        fork = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(2, mp_context=fork) as pool:
            base = dict(pool.map(usual, files))
            broken = [test for test, outcome in base.items() if outcome.noticed]
            if broken:
                print("these tests fail without any fault: " + ", ".join(broken))
                return 2
            spent = {m: sum(base[test].seconds for test in found) for m, found in tests.items()}
            jobs = [(mutant, GRACE + PATIENCE * spent[mutant.module]) for mutant in mutants]
            trials = []
            for mutant, outcome in pool.map(attempt, jobs):
                trials.append((mutant, outcome))
                if not outcome.noticed:
                    print(f"survived: {mutant}", flush=True)
    lowest = report(trials)
    print(f"{time.monotonic() - started:.0f} seconds")
    return int(lowest < asked.share)


if __name__ == "__main__":
    sys.exit(main())
