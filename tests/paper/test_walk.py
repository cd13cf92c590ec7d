"""docs/paper.md walked: names resolve, commands parse, files and settings exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from typer.main import get_command

from cslr.cli.main import app
from cslr.config import Config
from cslr.methods.registry import METHODS
from cslr.paper_constants import THE_PAPERS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")
SECTIONS = ("Method", "Theory", "Tables and figures")


def rows(section: str) -> list[list[str]]:
    """The rows of the table of a section, without its head."""
    part = TEXT.split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


EVERY = [row for section in SECTIONS for row in rows(section)]


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def parses(command: str) -> bool:
    """Whether the program has this command with these flags."""
    _, name, *rest = command.split()
    known = get_command(app).commands  # type: ignore[attr-defined]
    if name not in known:
        return False
    flags = {flag for option in known[name].params for flag in getattr(option, "opts", [])}
    return all(word in flags for word in rest if word.startswith("--"))


def is_setting(name: str) -> bool:
    value: object = Config()
    for part in name.split("."):
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


def exists(item: str) -> bool:
    if item.startswith("cslr "):
        return parses(item)
    if item.startswith(("cslr.", "paper.statistics")):
        return resolves(item)
    if "/" in item:
        return (ROOT / item).is_file()
    return False


def test_the_walk_covers_the_algorithm_the_theory_the_tables_and_the_figures():
    items = [row[0] for row in EVERY]
    for line in (1, 2, 3, 4, 6, 8, 9, 11, 12):
        assert any(item.startswith(f"Algorithm 1, line {line}") for item in items)
    for name in ("Definition 1", "Theorem 2", "Proposition 3", "Theorem 4", "Theorem 5"):
        assert any(item.startswith(name) for item in items)
    for number in range(1, 10):
        assert any(item.startswith(f"Table {number},") for item in items)
    assert sum(item.startswith("Figure") for item in items) == 2


@pytest.mark.parametrize("row", EVERY, ids=lambda row: row[0][:40])
def test_a_row_names_what_exists_and_says_how(row):
    _, here, how = row
    named = CODE.findall(here)
    assert named
    assert [item for item in named if not exists(item)] == []
    assert "as written" in how or "departure" in how
    assert "missing" not in how or "licensed OntoNotes is missing" in how


@pytest.mark.parametrize("row", rows("Constants"), ids=lambda row: row[0][:40])
def test_a_constant_is_a_setting_at_the_value_it_is_said_to_have(row):
    _, here, default = row
    settled = METHODS["cslr-paper"].settled(Config())
    for name in CODE.findall(here):
        if name.startswith("cslr."):
            assert resolves(name)
            continue
        assert is_setting(name)
        value: object = settled
        for part in name.split("."):
            value = getattr(value, part)
        if isinstance(value, int | float) and re.fullmatch(r"[\d.e-]+", default):
            assert float(default) == value


def test_every_constant_of_the_section_is_in_the_document():
    named = set(CODE.findall(TEXT)) | set(re.findall(r"paper\.\w+", TEXT))
    assert {f"paper.{name}" for name in type(THE_PAPERS).model_fields} <= named


def test_every_departure_has_a_reason_and_a_switch_or_says_why_there_is_none():
    departures = rows("Departures that are left in `cslr-paper`")
    assert len(departures) >= 5
    for departure, reason, switch in departures:
        assert departure
        assert reason
        assert switch.startswith("none") or all(
            is_setting(name) or exists(name) for name in CODE.findall(switch)
        )


def test_commands_in_the_document_parse():
    blocks = re.findall(r"```\n(.*?)```", TEXT, re.S)
    commands = [line for block in blocks for line in block.splitlines() if line]
    assert commands
    assert [command for command in commands if not parses(command)] == []
