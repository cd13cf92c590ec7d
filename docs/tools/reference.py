"""Writes the generated pages of the docs: the command line, the settings and the Python names.

`make docs` runs it; a test compares the pages with what it would write.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import BaseModel
from typer.main import get_command

import cslr
from cslr import config
from cslr.cli.main import app

DOCS = Path(__file__).resolve().parent.parent
EXIT_CODES = {
    0: "done",
    1: "the reader closed the pipe, a cell of `reproduce` failed, or `doctor` found a fault",
    2: "something to correct: a setting, a file, a budget; the message says what to do",
    3: "`ledger verify` or `audit` found that a claim does not hold",
    130: "interrupted; the message says how to resume",
}


def cli_page() -> str:
    """Every command with its help and options."""
    lines = ["# Command line", "", "Written by `make docs` from the program's own help.", ""]
    lines += ["## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    for name, command in commands(get_command(app), "cslr"):
        lines += ["", f"## `{name}`", "", _help(command.help or ""), ""]
        rows = [_parameter(each) for each in command.params]
        rows = [row for row in rows if row]
        lines += ["| | |", "|---|---|", *rows] if rows else []
    return "\n".join(lines) + "\n"


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """All commands below one, with their full names."""
    if isinstance(command, click.Group):
        for word, each in command.commands.items():
            yield from commands(each, f"{name} {word}")
    else:
        yield name, command


def _help(text: str) -> str:
    text = inspect.cleandoc(text).replace("\f", "")
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


def _parameter(parameter: Any) -> str:
    if parameter.name == "help" or getattr(parameter, "hidden", False):
        return ""
    said = re.sub(r"\s+", " ", getattr(parameter, "help", None) or "")
    said = said.replace("\\[", "[").replace("|", "\\|")
    flags = ", ".join([*parameter.opts, *parameter.secondary_opts])
    shown = parameter.name.upper() if parameter.param_type_name == "argument" else flags
    return f"| `{shown}` | {said} |"


_OF_THE_PAPER = (
    "The section `[paper]`: constants that the paper names, at its values. `cslr-paper` reads all "
    "of them, the other methods `paper.m`, `paper.list_size` and `paper.n_r`, and with a head that "
    "clients train `paper.replay_weight` and `paper.replay_loss`. [paper.md](paper.md) has a row "
    "for each."
)


def settings_page() -> str:
    """Every setting of a configuration: name, type, default and meaning."""
    lines = [
        "# Settings",
        "",
        "Written by `make docs`. A configuration is a TOML file; `cslr run FILE` reads it, and",
        "`--set name=value` sets one of these by its name.",
        "",
        "| setting | values | default | meaning |",
        "|---|---|---|---|",
    ]
    every = list(_settings(config.Config, ""))
    constants = [setting for setting in every if setting[0].startswith("paper.")]
    lines += [_row(*setting) for setting in every if setting not in constants]
    lines += [
        "",
        "## Constants of the paper",
        "",
        *textwrap.wrap(_OF_THE_PAPER, 100),
        "",
        *lines[5:7],
    ]
    lines += [_row(*setting) for setting in constants]
    return "\n".join(lines) + "\n"


def _settings(model: type[BaseModel], where: str) -> Iterator[tuple[str, Any, str]]:
    meanings = _meanings(model)
    for name, field in model.model_fields.items():
        kind = field.annotation
        if inspect.isclass(kind) and issubclass(kind, BaseModel):
            yield from _settings(kind, f"{where}{name}.")
        else:
            yield f"{where}{name}", field, meanings.get(name, "")


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """The strings that stand below the fields of a class."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    found, last = {}, ""
    for node in getattr(body, "body", []):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and last:
            found[last] = re.sub(r"\s+", " ", str(node.value.value))
            last = ""
        else:
            last = ""
    return found


def _row(name: str, field: Any, meaning: str) -> str:
    values = [each for each in _leaves(field.annotation) if each]
    usual = field.get_default(call_default_factory=True)
    default = "" if usual is None else f"`{usual}`"
    shown = ", ".join(dict.fromkeys(values))
    return f"| `{name}` | {shown} | {default} | {meaning.replace('|', chr(92) + '|')} |"


def _leaves(annotation: Any) -> Iterator[str]:
    inner = get_args(annotation)
    if inner:
        for each in inner:
            yield from _leaves(each)
    elif isinstance(annotation, str):
        yield f"`{annotation}`"
    elif annotation not in (type(None), ...):
        yield getattr(annotation, "__name__", "")


def api_page() -> str:
    """Every public name of the package: how it is called, where it lives, what it is."""
    lines = [
        "# Python names",
        "",
        "Written by `make docs` from docstrings: everything that `import cslr` offers. What other",
        "modules offer may change without notice. [From Python](python.md) explains the tiers.",
        "",
        "| name | is | in |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *map(_name, cslr.__all__)]) + "\n"


def _name(name: str) -> str:
    what = getattr(cslr, name)
    called = ""
    if inspect.isfunction(what):
        called = f"({', '.join(inspect.signature(what).parameters)})"
    said = re.sub(r"\s+", " ", (inspect.getdoc(what) or "").split("\n\n")[0]).replace("|", "\\|")
    where = what.__module__
    return f"| `{name}{called}` | {said.replace('``', '`')} | `{where}` |"


def pages() -> dict[Path, str]:
    """What is written, by file."""
    made = {"cli.md": cli_page(), "settings.md": settings_page(), "api.md": api_page()}
    return {DOCS / name: text for name, text in made.items()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
