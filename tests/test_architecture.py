"""Architecture rules: light imports, no unpickling, no global randomness, no shared names."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

import cslr
from cslr.errors import ConfigError

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
LONGEST_FILE = 480
MOST_PASSED = 45
"""Modules whose functions a run calls. More may be right; it should be on purpose."""
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
    "cslr.api",
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


FUNCTIONS = [
    (f"{path.relative_to(SOURCE)} {node.name}", node)
    for path in FILES
    if path.relative_to(SOURCE).parts[0] != "cli"  # a command has an argument per flag
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.FunctionDef)
]


def test_no_function_outside_the_command_line_takes_more_than_seven_positional_arguments():
    def count(node: ast.FunctionDef) -> int:
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        return len([name for name in names if name not in ("self", "cls")])

    assert [name for name, node in FUNCTIONS if count(node) > 7] == []


MANUALS = {"api/entry.py learn"}
"""Functions whose docstring is a manual, and is not counted."""


def test_no_function_outside_the_command_line_has_more_than_fifty_lines():
    def lines(name: str, node: ast.FunctionDef) -> int:
        first = node.body[1] if name in MANUALS else node
        return (node.end_lineno or node.lineno) - first.lineno + 1

    assert len(FUNCTIONS) > 1000
    assert [name for name, node in FUNCTIONS if lines(name, node) > 50] == []


def test_no_file_is_much_longer_than_450_lines():
    long = {str(path.relative_to(SOURCE)): len(path.read_bytes().splitlines()) for path in FILES}
    assert {name: lines for name, lines in long.items() if lines > LONGEST_FILE} == {}


def test_the_round_is_one_page():
    page = (SOURCE / "protocol" / "round.py").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 180


# -- what a command loads, and what it passes through ----------------------------------------------

LOADED = """
import sys
from cslr.cli.main import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print("loaded:", *sorted(name for name in sys.modules if name.split(".")[0] == "cslr"))
"""
PASSED = """
import sys, threading
passed = set()
def importing(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals["__name__"] != "__main__":
            return True
        frame = frame.f_back
    return False
def note(frame, event, argument):
    name = frame.f_globals.get("__name__") or ""
    if event == "call" and name.startswith("cslr") and name not in passed:
        if not importing(frame):
            passed.add(name)
threading.setprofile(note)
sys.setprofile(note)
from cslr.cli.main import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
sys.setprofile(None)
print("passed:", *sorted(passed))
"""


def reported(program: str, *arguments: str) -> list[str]:
    """What the program prints in its last line, after a word and a colon."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1].partition(":")[2].split()


@pytest.fixture(scope="module")
def passed_by_a_run(tmp_path_factory):
    """A finished run of the embedded stream, and the modules whose functions it called.

    A run before it fills the cache, if that was empty: what encodes texts is not counted.
    """
    folder = tmp_path_factory.mktemp("run")
    reported(LOADED, "run", "--stream", "clinic", "--run-dir", str(folder / "before"))
    run = folder / "clinic"
    return run, reported(PASSED, "run", "--stream", "clinic", "--run-dir", str(run))


@pytest.mark.slow
def test_a_run_passes_through_few_modules(passed_by_a_run):
    _, passed = passed_by_a_run
    assert "cslr.protocol.round" in passed
    assert len(passed) <= MOST_PASSED, " ".join(passed)


WITHOUT_TORCH = """
import sys
sys.path[:0] = [{tests!r}]
import numpy as np
import cslr
from api.conftest import make_arguments
arguments = make_arguments()
for kind in ("released", "federated"):
    settings = {{**arguments["settings"], "head.kind": kind, "head.rounds": 1}}
    settings = settings if kind == "federated" else arguments["settings"]
    model = cslr.learn(**{{**arguments, "settings": settings}}, simulate=True)
    assert np.mean(model.predict(arguments["X"]) == arguments["y"]) > 0.5
print("heavy:", *[name for name in {heavy!r} if name in sys.modules])
"""


def test_learning_from_embeddings_and_asking_load_nothing_heavy():
    """Heads are trained in NumPy, by the server and by clients: torch is for encoders."""
    program = WITHOUT_TORCH.format(tests=str(Path(__file__).parent), heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "heavy:"


@pytest.mark.slow
def test_a_run_on_cached_embeddings_loads_nothing_heavy(passed_by_a_run, tmp_path):
    program = LOADED.replace('== "cslr"', f"in {HEAVY!r}")
    loaded = reported(program, "run", "--stream", "clinic", "--run-dir", str(tmp_path / "again"))
    assert loaded == []


@pytest.mark.slow
def test_asking_a_head_loads_little_and_no_method(passed_by_a_run):
    run, _ = passed_by_a_run
    loaded = reported(LOADED, "predict", str(run), "--text", "My knee hurts.")
    assert "cslr.runs.predict" in loaded
    assert not [name for name in loaded if name.startswith(("cslr.methods", "cslr.privacy"))]
    assert len(loaded) <= 40, " ".join(loaded)


def test_the_wheel_has_no_tooling_of_the_repository(tmp_path):
    """What compares with one paper, and the tests, are in a checkout alone."""
    pytest.importorskip("hatchling")
    program = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=SOURCE.parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        names = wheel.namelist()
    assert "cslr/research/experiments/grid.py" in names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"cslr"}


def test_tables_outside_a_checkout_say_where_they_are_made(monkeypatch, tmp_path):
    from cslr.cli import experiments

    monkeypatch.setattr(experiments, "__file__", str(tmp_path / "lib/cslr/cli/experiments.py"))
    with pytest.raises(ConfigError, match="run it in a checkout of the repository"):
        experiments._tables_of_the_paper()


def test_methods_that_are_folders_are_imported_when_asked_for():
    program = (
        "import sys, cslr.methods.registry; late = ('cslr.methods.fedcil', 'cslr.methods.fedta'); "
        "print([name for name in sys.modules if name.startswith(late)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SOURCE.parent)},
    )
    assert done.stdout.strip() == "[]"


SHARED_FILE_NAMES = {
    "audit.py": ("cli", "cli/show"),  # a verb, and what it prints
    "theory.py": ("cli", "cli/show"),  # a verb, and what it prints
    "run.py": ("cli", "cli/show"),  # a verb, and what it prints
    "predict.py": ("cli", "runs"),  # a verb, and what it runs
    "ag_news.py": ("data/hub", "data/streams"),  # a data set downloaded, and read
    "amazon.py": ("data/hub", "data/streams"),
    "multiwoz.py": ("data/hub", "data/streams"),
    "conll.py": ("data/own/formats", "data/streams"),  # one file format, of own rows and of streams
    # The secure sum is a protocol with a client, a server, messages and terms of its own.
    "codec.py": ("federation/wire", "privacy/secure_sum"),
    "messages.py": ("privacy/secure_sum", "protocol"),
    "server.py": ("methods/fedta", "privacy/secure_sum"),
    "terms.py": ("federation/wire", "privacy/secure_sum"),
}
"""File names that two packages may share, with these packages."""


def shared_names(places: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Names that occur in several places, with the places; from pairs (name, place)."""
    found = defaultdict(list)
    for name, place in places:
        found[name].append(place)
    return {name: tuple(sorted(where)) for name, where in found.items() if len(where) > 1}


def test_no_two_public_classes_share_a_name():
    classes = [
        (node.name, str(path.relative_to(SOURCE)))
        for path in FILES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert len(classes) > 100
    assert shared_names(classes) == {}


def test_modules_share_a_file_name_only_where_it_is_listed():
    modules = [
        (path.name, path.parent.relative_to(SOURCE).as_posix())
        for path in FILES
        if path.name not in ("__init__.py", "__main__.py")
    ]
    assert shared_names(modules) == SHARED_FILE_NAMES


def test_a_name_in_two_places_is_found():
    places = [("Bound", "audit"), ("Head", "protocol"), ("Bound", "theory")]
    assert shared_names(places) == {"Bound": ("audit", "theory")}


# -- what tests expect -----------------------------------------------------------------------------

TESTS = Path(__file__).parent
WITHOUT_MESSAGE = {"KeyboardInterrupt", "SystemExit"}


def raised(tree: ast.AST) -> list[tuple[int, str, bool]]:
    """Each ``pytest.raises``: its line, what is expected, and whether the message is."""
    return [
        (node.lineno, dotted(node.args[0]), any(word.arg == "match" for word in node.keywords))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and dotted(node.func) == "pytest.raises"
    ]


def test_whoever_expects_an_error_says_which():
    """By its message; only what a test raises itself, to stop the code somewhere, has none."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(TESTS.rglob("*.py"))
    }
    own = {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    vague = [
        f"{path.relative_to(TESTS)}:{line}"
        for path, tree in trees.items()
        for line, error, has_match in raised(tree)
        if not has_match and error not in own | WITHOUT_MESSAGE
    ]
    assert vague == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("with pytest.raises(ValueError): f()", [(1, "ValueError", False)]),
        ("with pytest.raises(ValueError, match='x') as told: f()", [(1, "ValueError", True)]),
        ("with patch(), pytest.raises(errors.Bad): f()", [(1, "errors.Bad", False)]),
    ],
)
def test_the_search_finds_expected_errors(source, found):
    assert raised(ast.parse(source)) == found
