"""Every command of README and docs runs: the quick ones here, all of them in an installed shell."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import venv
from itertools import takewhile
from pathlib import Path

import pytest

from tests import document_commands as documents
from tests.report.conftest import write_run

ROOT = documents.ROOT
BY_PAGE = documents.all_commands()
PRINTED = list(dict.fromkeys(each for commands in BY_PAGE.values() for each in commands))
TEXTS = list(dict.fromkeys(each.text for each in PRINTED))
WHOLE = [
    each
    for each in PRINTED
    if each.text.startswith("cslr ")
    and not documents.is_mention(each)
    and not documents.cannot_run(each.text)
]
QUICK = list(
    {
        re.sub(r"runs/(NAME|my-run|a|b)\b", "RUN", each.text): each.text
        for each in WHOLE
        if documents.is_quick(each.text)
    }.values()
)
"""Each once, whatever the run is called."""
BY_HAND = ("make ", "pip ", "source ", "python3 -m venv")
IN_SHELL = {
    page: found
    for page, commands in BY_PAGE.items()
    if (
        found := [
            each.text
            for each in dict.fromkeys(commands)
            if not each.text.startswith(BY_HAND)
            and not documents.cannot_run(each.text)
            and not documents.is_mention(each)
        ]
    )
}
"""What is run of each page, in order."""
RUNS = ("runs/a", "runs/b", "runs/my-run", "runs/NAME", "studies/a", "A", "B", "RUN", "RUN_DIR")
ROWS = ("my", "reviews", "mine")


def read_by_the_reader(declaration: Path) -> None:
    """What a page asks the reader to do with a draft: describe the labels, name the sentences."""
    text = declaration.read_text(encoding="utf-8")
    text = text.replace('description = ""', 'description = "A message of a reader to a library."')
    text = text.replace("confirmed = false", 'confirmed = true\npublic = "public.txt"')
    declaration.write_text(text, encoding="utf-8")


def lay_out(folder: Path, runs: dict[str, Path]) -> None:
    """The files that pages speak about: rows with declarations, public sentences, runs."""
    example = ROOT / "examples" / "own_data"
    declared = (example / "libraries.cslr.toml").read_text(encoding="utf-8")
    for name in ROWS:
        shutil.copy(example / "libraries.csv", folder / f"{name}.csv")
        (folder / f"{name}.cslr.toml").write_text(declared.replace('"libraries"', f'"{name}"'))
    for file in ("libraries.csv", "libraries.cslr.toml", "public.txt"):
        shutil.copy(example / file, folder / file)
    for file in ("clinics.csv", "clinics.cslr.toml"):
        shutil.copy(ROOT / "examples" / "clinics" / file, folder / file)
    lines = (example / "libraries.csv").read_text(encoding="utf-8").splitlines()[1:40]
    rows = [re.split(r",(?=\S)", line.replace('"', ""), maxsplit=2) for line in lines]
    shown = [
        f"{shop}\t{text}\t{'good' if n % 2 else 'bad'}" for n, (shop, _, text) in enumerate(rows)
    ]
    (folder / "shops.tsv").write_text("\n".join(["shop_id\tbody\tmood", *shown]) + "\n")
    (folder / "messages.txt").write_text("May I keep the atlas?\n\nThe hall is cold.\n")
    (folder / "run.toml").write_text('seeds = [13]\n[stream]\nname = "clinic"\n')
    shutil.copy(folder / "run.toml", folder / "FILE")
    for name, run in runs.items():
        shutil.copytree(run, folder / name)


# What can be said of every command.


def test_commands_that_cannot_run_here_are_listed_by_name():
    """A stale entry shows itself here; a command that needs data sets is recognised anyway."""
    others = {*documents.NEED_MORE} | documents.INSTALLING | documents.ACROSS_MACHINES
    assert sorted(others - {*TEXTS}) == []
    assert len(documents.NEED_DATA_SETS & {*TEXTS}) > 8
    for text in TEXTS:
        assert ("--data DIR" not in text) or documents.cannot_run(text) == "data sets"


def test_the_pages_have_commands_of_every_kind():
    assert len(QUICK) > 25
    assert {"README.md", "docs/tutorial.md", "docs/own-data.md", "docs/silos.md"} <= {*IN_SHELL}
    assert sum(map(len, IN_SHELL.values())) > 80


def test_every_make_target_of_a_page_can_be_made():
    targets = sorted({text for text in TEXTS if text.startswith("make ")})
    assert len(targets) > 10
    for text in targets:
        words = [*shlex.split(text), "--dry-run"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, f"{text}: {done.stderr}"


# The quick commands, in this process.


@pytest.fixture(scope="module")
def made_home(tmp_path_factory) -> Path:
    """Files that pages speak about, with runs made by hand."""
    made, home = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("laid-out")
    person = write_run(made / "person")
    client = write_run(made / "client", {"privacy.unit": "client"}, unit="client")
    runs = {**dict.fromkeys(RUNS, person), "runs/b": client}
    lay_out(home, {**runs, "runs/person": person, "runs/client": client})
    traces = shutil.ignore_patterns("traces")
    shutil.copytree(ROOT / "experiments", home / "experiments", ignore=traces)
    return home


@pytest.mark.parametrize("text", QUICK)
def test_a_quick_command_runs_as_printed(text, cslr, made_home, tmp_path, monkeypatch):
    home = shutil.copytree(made_home, tmp_path / "home")
    monkeypatch.chdir(home)
    words = shlex.split(text)[1:]
    make_room(words, home)
    asks = words[:2] == ["runs", "delete"]
    code, out, err = cslr(*words, *["--yes"] * asks)
    assert code == 0, err
    assert out
    if "--json" in words:
        json.loads(out)


def test_every_verb_that_a_sentence_names_has_help_with_an_example(cslr):
    named = [each.text for each in PRINTED if documents.is_mention(each)]
    verbs = {verb_of(text) for text in named if text.startswith("cslr ")}
    assert len(verbs) > 20
    for verb in sorted(verbs):
        code, out, _ = cslr(*verb, "--help")
        assert code == 0, verb
        assert "Example" in out or verb in GROUPS, verb


GROUPS = {("ledger",), ("runs",), ()}


def verb_of(text: str) -> tuple[str, ...]:
    """The words of a command before its arguments."""
    return tuple(takewhile(re.compile("[a-z]+").fullmatch, shlex.split(text)[1:]))


def make_room(words: list[str], home: Path) -> None:
    """A draft is written where there is none, a run made where there is none, a budget is whole."""
    rows = next((home / word for word in words if word.endswith((".csv", ".tsv"))), None)
    if words[:2] == ["data", "init"] and rows is not None and "--declaration" not in words:
        rows.with_suffix(".cslr.toml").unlink(missing_ok=True)
    if words[0] == "run" and rows is not None:
        shutil.rmtree(rows.with_suffix(".cslr-federation"), ignore_errors=True)
        rows.with_suffix(".cslr-ledger").unlink(missing_ok=True)
    if "--run-dir" in words:
        shutil.rmtree(home / words[words.index("--run-dir") + 1], ignore_errors=True)
    if words[-3:-2] == ["elsewhere/ledger"]:
        (home / "elsewhere").mkdir()
        (home / "reviews.cslr-federation").rename(home / "elsewhere" / "ledger")


# All commands, in a shell as a user has it after installation.


class Shell:
    """Bash in the environment that an installation leaves, and the directory it is in."""

    def __init__(self, environment: Path, cache: Path, folder: Path) -> None:
        self.folder = folder
        self._activate = f"source {shlex.quote(str(environment / 'bin' / 'activate'))}"
        self._variables = {
            "HOME": str(folder),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "CSLR_CACHE_DIR": str(cache),
            "OMP_NUM_THREADS": "1",
        }

    def __call__(self, text: str) -> str:
        """The output of a command that succeeds; ``cd`` holds for the commands that follow."""
        script = f"{self._activate}\n{text}\ncode=$?; pwd > $HOME/.now; exit $code"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self._variables,
            input="y\n",
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{text}: {done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr
        self.folder = Path((Path(self._variables["HOME"]) / ".now").read_text().strip())
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """An environment with the package installed by pip; what it needs is that of this one."""
    place = tmp_path_factory.mktemp("installed") / "environment"
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    packages = next((place / "lib").glob("python*")) / "site-packages"
    (packages / "needed.pth").write_text(f"{Path(pytest.__file__).parent.parent}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", "--force-reinstall"]
    subprocess.run([*pip, *options, str(ROOT)], check=True, capture_output=True)
    return place


@pytest.fixture(scope="module")
def used_home(installed, cache, tmp_path_factory) -> Path:
    """Files that pages speak about, with runs made by the installed program."""
    home = tmp_path_factory.mktemp("used-home")
    shell = Shell(installed, cache, home)
    shell("cslr run --quiet --run-dir first; cslr run --quiet --unit client --run-dir client")
    runs = {**dict.fromkeys(RUNS, home / "first"), "runs/person": home / "first"}
    lay_out(home, {**runs, "runs/client": home / "client", "model": home / "first"})
    for folder in ("examples", "experiments", "benchmarks", "paper", "docs"):
        shutil.copytree(ROOT / folder, home / folder)
    return home


@pytest.mark.slow
@pytest.mark.parametrize("page", IN_SHELL)
def test_the_commands_of_a_page_run_in_an_installed_shell(
    page, installed, used_home, cache, tmp_path
):
    home = shutil.copytree(used_home, tmp_path / "home")
    shell = Shell(installed, cache, home)
    if page == "docs/cli.md":  # its examples stand alone, and one is about a ledger
        shell("cslr run --quiet --data reviews.csv --run-dir reviews")
    for text in dict.fromkeys(IN_SHELL[page]):
        words = shlex.split(text)
        make_room(words[1:], shell.folder)
        out = shell(text)
        if words[:3] == ["cslr", "data", "init"] and "--declaration" not in words:
            read_by_the_reader((shell.folder / words[3]).with_suffix(".cslr.toml"))
        assert out or words[0] == "cp" or "--until" in words, text


@pytest.mark.slow
def test_the_installed_program_is_not_the_one_of_the_repository(installed, cache, tmp_path):
    shell = Shell(installed, cache, tmp_path)
    where = shell("python -c 'import cslr; print(cslr.__file__)'").strip()
    assert Path(where).is_relative_to(installed)
    assert shell("cslr --version") == shell("python -m cslr --version")
