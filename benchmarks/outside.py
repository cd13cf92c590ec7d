"""CSLR with default settings on data sets that no choice was made on, as a user's own rows.

    apt-cache dumpavail > available.txt
    apt-get download fortunes fortunes-min  # and unpack them with dpkg -x
    python benchmarks/outside.py available.txt DIR sentences.txt

``sections``: the short descriptions of Debian packages and the section of each. ``purposes``: the
same texts with the purposes that their tags name, several a text. ``sayings``: the files of fortune
and the subject of each. 60 clients; a row is a person. Every cell is ``cslr run --data FILE
--privacy simulated`` with seeds 1 and 2. The table goes into docs/transfer.md.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from transfer import CELLS, ROOT, Outcome, rows_of

PAGE: Final = ROOT / "docs" / "transfer.md"
BEGIN, END = (
    "<!-- outside:begin (written by `benchmarks/outside.py`) -->",
    "<!-- outside:end -->",
)
SEEDS: Final = "1,2"
CLIENTS: Final = 60
MOST: Final = 480
"""Texts of one label."""
COLUMNS: Final = ("text", "label", "client", "task", "split", "person")
TEST: Final = 5
"""Every fifth text is a test row."""
SHORTEST, LONGEST = 15, 400
SENTENCES: Final = 6_000


class Row(NamedTuple):
    """A text, its labels with the main one first, and whoever keeps it."""

    text: str
    labels: tuple[str, ...]
    keeper: str


# -- what is read ----------------------------------------------------------------------------------


def packages(available: Path) -> Iterator[dict[str, str]]:
    """The fields of every package that ``apt-cache dumpavail`` lists."""
    for block in available.read_text(encoding="utf-8").split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in block.splitlines():
            if line.startswith(" "):
                fields[name] += line
            elif ": " in line:
                name, fields[name] = line.split(": ", 1)
        if "Description" in fields:
            yield fields


def sections(available: Path, labels: Mapping[str, str]) -> Iterator[Row]:
    """Packages of the declared sections."""
    for fields in packages(available):
        if fields.get("Section") in labels:
            yield Row(_plain(fields["Description"]), (fields["Section"],), fields["Maintainer"])


def purposes(available: Path, labels: Mapping[str, str]) -> Iterator[Row]:
    """Packages that have one of the declared purposes among their tags."""
    for fields in packages(available):
        tags = dict.fromkeys(re.findall(r"use::([a-z-]+)", fields.get("Tag", "")))
        if chosen := tuple(tag for tag in tags if tag in labels):
            yield Row(_plain(fields["Description"]), chosen, fields["Maintainer"])


def sayings(fortunes: Path, labels: Mapping[str, str]) -> Iterator[Row]:
    """Sayings of the declared files; each is kept by itself."""
    for label in labels:
        for text in (fortunes / label).read_text(encoding="utf-8").split("\n%\n"):
            plain = _plain(text)
            yield Row(plain[:LONGEST], (label,), plain)


def _plain(text: str) -> str:
    """One line without what stands in brackets."""
    return " ".join(re.sub(r"\(.*?\)", "", text, flags=re.DOTALL).split())


# -- what is run -----------------------------------------------------------------------------------


def chosen(rows: Iterator[Row]) -> list[Row]:
    """Different texts in the order of their hashes, so many of each main label."""
    texts = {row.text: row for row in rows if len(row.text) > SHORTEST}
    count: Counter[str] = Counter()
    kept = []
    for row in sorted(texts.values(), key=lambda row: _number(row.text)):
        count[row.labels[0]] += 1
        if count[row.labels[0]] <= MOST:
            kept.append(row)
    return kept


def _number(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)


def write_rows(path: Path, rows: Sequence[Row], tasks: Sequence[Sequence[str]]) -> None:
    """Four texts of one keeper lie with one client."""
    task_of = {label: number for number, labels in enumerate(tasks) for label in labels}
    met: Counter[str] = Counter()
    main: Counter[str] = Counter()
    with path.open("w", newline="", encoding="utf-8") as file:
        sheet = csv.writer(file)
        sheet.writerow(COLUMNS)
        for number, row in enumerate(rows):
            client = _number(f"{row.keeper} {met[row.keeper] // 4}") % CLIENTS
            met[row.keeper] += 1
            main[row.labels[0]] += 1
            split = "test" if main[row.labels[0]] % TEST == 0 else "train"
            task = f"task {task_of[row.labels[0]] + 1}"
            sheet.writerow([row.text, "|".join(row.labels), client, task, split, number])


def declaration(name: str, kind: Mapping[str, Any], unit: str, people: int) -> str:
    """What is known of the rows before any is read."""
    registered = f"people = {people}\nrows_per_person = 1\n" if unit == "person" else ""
    columns = "".join(f'{key} = "{key}"\n' for key in COLUMNS)
    labels = "".join(
        f"[[labels]]\nname = {json.dumps(label)}\ndescription = {json.dumps(text)}\n"
        for label, text in kind["labels"].items()
    )
    tasks = "".join(
        f'[[tasks]]\nname = "task {number}"\nlabels = {json.dumps(labels)}\n'
        for number, labels in enumerate(kind["tasks"], start=1)
    )
    return (
        f'confirmed = true\nname = "{name}"\nfamily = "{kind["family"]}"\nscenario = "class"\n'
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
    """Both units at three values of ε beside zero-shot, a trusted curator and pooled training."""
    for unit in ("client", "person"):
        write_rows(folder / f"{name}-{unit}.csv", rows, kind["tasks"])
        text = declaration(f"{name}-{unit}", kind, unit, len(rows))
        (folder / f"{name}-{unit}.cslr.toml").write_text(text, encoding="utf-8")

    def of(unit: str, epsilon: float, method: str = "cslr") -> float:
        found = run(folder, f"{name}-{unit}", epsilon, "--method", method, "--no-yardsticks")
        return float(found["aa"])

    sizes = len(kind["labels"]), len(kind["tasks"]), CLIENTS, len(rows)
    ends = of("client", 4.0, "zero-shot"), of("client", 4.0, "joint")
    more = of("person", 4.0, "dp-joint"), of("person", math.inf)
    return Outcome(name, *sizes, *ends, *more, {cell: of(*cell) for cell in CELLS})


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("available", type=Path, help="of apt-cache dumpavail")
    parser.add_argument("fortunes", type=Path, help="usr/share/games/fortunes")
    parser.add_argument("public", type=Path, help="public sentences, one a line")
    asked = parser.parse_args()
    kinds = tomllib.loads((ROOT / "benchmarks" / "outside.toml").read_text(encoding="utf-8"))
    read = {
        "sections": sections(asked.available, kinds["sections"]["labels"]),
        "purposes": purposes(asked.available, kinds["purposes"]["labels"]),
        "sayings": sayings(asked.fortunes, kinds["sayings"]["labels"]),
    }
    outcomes = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sentences = asked.public.read_text(encoding="utf-8").splitlines()[:SENTENCES]
        (folder / "public.txt").write_text("\n".join(sentences) + "\n", encoding="utf-8")
        for kind, rows in read.items():
            outcomes.append(outcome(folder, kind, kinds[kind], chosen(rows)))
            print(outcomes[-1].row(), flush=True)
    table = rows_of("data set", outcomes)
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text("\n".join([head + BEGIN, *table, END]) + rest.split(END)[1], encoding="utf-8")
    return 1 if any(each.below() for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
