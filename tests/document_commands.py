"""Every command that README and docs print, copied out, and where each of them is tried.

A command is a line of a shell block, or a span of code that begins with a program's name. Commands
that cannot run in a test are listed here by name, with the reason.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
PROGRAMS: Final = ("cslr", "make", "pip", "python", "python3", "source", "cp", "npm")

NEED_DATA_SETS: Final = frozenset(
    {
        "cslr run --stream ag-news --data DIR --epsilon 4 --seeds 13,17,19,23,29",
        "cslr run --stream ag-news --data DIR --clients 20 --epsilon 4 --seeds 13,17,19,23,29",
        'cslr run --stream ag-news --data DIR --set \'encoders=["minilm", "mpnet"]\' '
        "--set replay.coordinates=mapped",
        "cslr anchors --stream ag-news --data DIR",
        "cslr anchors --stream ag-news --data DIR --margin 0.25 --sweep 10,25,50,100,200",
        "cslr anchors --encoders minilm,mpnet --stream ag-news --data DIR",
        "cslr reproduce --data DIR --streams ag-news --seeds 13,17",
        "cslr reproduce --data DIR --check 20",
        "cslr reproduce experiments/literal.toml --data DIR",
        "cslr reproduce experiments/main.toml --data DIR",
        "cslr reproduce experiments/privacy.toml --data DIR",
        "python benchmarks/lists.py --data DIR "
        "--streams multiwoz-services,amazon-products,ag-news-pairs-small",
        "python benchmarks/outside.py FOLDER",
        "python benchmarks/transfer.py --data DIR",
    }
)
"""Benchmark data sets are not part of the project."""

NEED_MORE: Final = {
    "cslr upgrade runs/old --encoder mpnet": "the encoder mpnet",
    "cslr anchors --encoders minilm,mpnet": "the encoder mpnet",
    "cslr anchors --encoders minilm,mpnet --data mine.csv --json": "the encoder mpnet",
    'cslr predict runs/mixed --encoder mpnet --text "A text"': "the encoder mpnet",
    "cslr run --encoder mpnet --set 'encoders=[\"minilm\"]' --set upgrade=2": "the encoder mpnet",
    "python -m cslr": "a verb after it (tests/cli/test_start.py)",
    "cslr data fetch public data": "a connection",
    "cslr data fetch public DIR": "a connection",
    "cslr tables --out tables": "a checkout (tests/cli/test_experiments.py)",
    "cslr tables --traces experiments/traces --out tables": "a checkout",
    "cslr run --matcher direction --sub-modes 2": "the matcher that CONTRIBUTING.md adds",
}
"""What else a command needs."""

INSTALLING: Final = frozenset(
    {
        "python3 -m venv .venv",
        "source .venv/bin/activate",
        'pip install -c constraints.txt ".[text]"',
        'pip install ".[text]"',
        'pip install "cslr[hub]"',
        'pip install "cslr[onnx]"',
        'pip install "cslr[parquet]"',
        "pip install 'cslr[flower]'",
        "cslr --install-completion",
    }
)
"""What the shell of the tests has behind it; the last changes the user's shell."""

ACROSS_MACHINES: Final = frozenset(
    {
        "cslr federation try --nodes 5",
        "cslr federation init hospitals --declaration letters.cslr.toml --host fed.org",
        "cslr federation init hospitals --declaration hospitals.cslr.toml "
        "--host fed.example.org --port 9092",
        "cslr federation join node --offer offer --name berlin --data letters.csv",
        "cslr federation join /srv/cslr --offer offer --name berlin --data letters.csv",
        "cslr federation join /srv/cslr --roster roster.json",
        "cslr federation join /srv/cslr --roster roster.json --change",
        "cslr federation serve hospitals",
        "cslr federation serve hospitals --members 5",
        "cslr federation try --nodes 3 --tasks 2",
        "cslr federation try --nodes 3 --stream ward --tasks 2 --head rounds",
        "cslr federation node node",
        "cslr federation node /srv/cslr",
        "cslr federation run hospitals",
        "cslr federation status hospitals --json",
        "cslr federation down hospitals",
        'cslr predict /srv/cslr/model --text "My knee hurts."',
    }
)
"""Several parties at once: tests/cli/test_federation.py and `make federation` run these."""

_PLACEHOLDER: Final = re.compile(r"^(NAME|N|PATH|VALUE|DIR)$")
QUICK: Final = ("plan", "data", "ledger", "report", "runs", "doctor", "anchors", "reproduce")
"""Verbs that need neither encoder nor training, so that they are tried with every change."""


class Printed(NamedTuple):
    """A command of a page; whole if it stands in a block, so that a reader would copy it."""

    text: str
    whole: bool


def commands_of(page: str) -> list[Printed]:
    """The commands of a page in order."""
    found = []
    for part in re.split(r"(^```.*?^```$)", page, flags=re.MULTILINE | re.DOTALL):
        if part.startswith(("```bash", "```console", "```\n")):
            lines = part.replace("\\\n", " ").splitlines()[1:-1]
            found += [Printed(text, True) for line in lines if (text := _command_in(line))]
        elif not part.startswith("```"):
            spans = re.findall(r"`([^`]+)`", part.replace("\n", " "))
            found += [Printed(text, False) for span in spans if (text := _command_in(span))]
    return found


def _command_in(line: str) -> str:
    """The command of a line without prompt and comment, or nothing."""
    text = re.sub(r"\s+# .*", "", line.strip().removeprefix("$ ")).strip()
    program, _, rest = text.partition(" ")
    return " ".join(text.split()) if program in PROGRAMS and rest else ""


def all_commands() -> dict[str, list[Printed]]:
    """By page, of pages that have any."""
    found = {
        str(page.relative_to(ROOT)): commands_of(page.read_text(encoding="utf-8")) for page in PAGES
    }
    return {page: commands for page, commands in found.items() if commands}


def is_mention(command: Printed) -> bool:
    """Whether a span names a command instead of giving one: no arguments, or open ones."""
    if command.whole:
        return False
    words = shlex.split(command.text)
    return (
        all(re.fullmatch(r"[a-z]+", word) for word in words)
        or (words[-1].startswith("--") and words[-1] not in ("--json", "--planner"))
        or any(_PLACEHOLDER.match(word) or "=VALUE" in word for word in words)
    )


def cannot_run(text: str) -> str:
    """Why a command cannot run in a test, or nothing."""
    if text in NEED_DATA_SETS or "--data DIR" in text:
        return "data sets"
    if text in INSTALLING:
        return "installs"
    if text in ACROSS_MACHINES:
        return "several parties"
    return NEED_MORE.get(text, "")


def is_quick(text: str) -> bool:
    """Whether it is tried with every change, too."""
    words = shlex.split(text)
    slow = {"--stream", "--encoders", "--check", "moved"} & {*words} or text == "cslr doctor"
    spent = "-federation" in text  # there after a run on one's own rows only
    return words[0] == "cslr" and words[1] in QUICK and not slow and not spent
