"""What the house promises about itself: light imports, and nothing that loads or draws unseen."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cslr

SOURCE = Path(cslr.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
HEAVY = ("torch", "flwr", "sentence_transformers", "transformers", "sklearn", "seqeval")

FORBIDDEN_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {
    "torch.load",
    "torch.save",
    "torch.manual_seed",
    "torch.seed",
    "np.load",
    "np.save",
    "np.savez",
    "numpy.load",
}
STREAM_TYPES = {"Generator", "PCG64", "SeedSequence", "BitGenerator"}


def dotted(node: ast.AST) -> str:
    """``np.random.normal`` of an attribute chain, or nothing."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def offences(tree: ast.AST) -> list[str]:
    """Imports and attributes that may not occur, each with its line."""
    found = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [dotted(node)]
        found += [f"line {node.lineno}: {name}" for name in names if is_forbidden(name)]
    return found


def is_forbidden(name: str) -> bool:
    root = name.split(".")[0]
    if root in FORBIDDEN_MODULES or root == "random":
        return True
    for start in ("np.random.", "numpy.random."):
        if name.startswith(start):
            return name.removeprefix(start).split(".")[0] not in STREAM_TYPES
    return name in FORBIDDEN_CALLS


LIGHT = (
    "cslr",
    "cslr.privacy.ledger.book",
    "cslr.privacy.mechanism",
    "cslr.privacy.plan",
    "cslr.protocol.round",
    "cslr.federation.simulation",
    "cslr.runs.learn",
    "cslr.cli.main",
)


def test_importing_loads_nothing_heavy():
    """One after the other in one process: each line says what was loaded by then."""
    program = (
        "import importlib, sys\n"
        f"for name in {LIGHT!r}:\n"
        "    importlib.import_module(name)\n"
        f"    print(name, [heavy for heavy in {HEAVY!r} if heavy in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SOURCE.parent)},
    )
    assert done.stdout.splitlines() == [f"{name} []" for name in LIGHT]


def test_nothing_is_unpickled_and_no_global_generator_is_read():
    assert len(FILES) > 100
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
    found = {str(path.relative_to(SOURCE)): offences(tree) for path, tree in trees.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import random",
        "from random import shuffle",
        "x = torch.load('f')",
        "x = np.load('f')",
        "torch.manual_seed(0)",
        "np.random.seed(0)",
        "x = np.random.normal(size=3)",
        "x = np.random.default_rng()",
        "from numpy.random import default_rng",
    ],
)
def test_the_search_finds_what_it_looks_for(line):
    assert offences(ast.parse(line))


@pytest.mark.parametrize(
    "line",
    ["def f(rng: np.random.Generator): ...", "x = np.random.Generator(np.random.PCG64(3))"],
)
def test_the_search_leaves_streams_by_name_alone(line):
    assert not offences(ast.parse(line))


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        cslr.no_such_name  # noqa: B018


def test_every_public_name_can_be_had_and_there_are_no_others():
    assert cslr.__all__ == sorted(cslr.__all__, key=lambda name: (name.islower(), name))
    for name in cslr.__all__:
        assert getattr(cslr, name).__name__ == name
    assert set(dir(cslr)) == {*cslr.__all__, "__version__"}
