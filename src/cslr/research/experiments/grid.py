"""Experiment files, and their cells: one configuration with one seed and a name each.

    title = "Final average score after all tasks"
    paper = ["tab:main"]      # the paper's tables and figures it rebuilds
    reproduce = true          # whether `cslr reproduce` runs it by default
    [[part]]                  # an experiment is the union of its parts
    base = { "privacy.epsilon" = 4.0 }
    grid = { "stream.name" = ["ag-news", "amazon"], "seed" = [13, 17] }   # the cross product
    [[table]]                 # how it is shown; read by the package paper
    name = "main"

A name depends on the settings only, so two experiments share a cell with the same settings, and a
cell that was finished on another machine is finished here.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cslr.config import Config, StreamConfig, dotted, load_config, mistakes, with_settings
from cslr.errors import ConfigError
from cslr.research.experiments.first_names import first_names

__all__ = [
    "STUDIES_KEPT",
    "Cell",
    "Experiment",
    "Part",
    "all_cells",
    "chosen",
    "is_marked",
    "load_experiment",
    "plain_config",
]

STUDIES_KEPT: Final = 2
"""Embedded streams ("studies") that a process keeps in memory; the largest take a gigabyte."""
_NOT_READ: Final = {"clients", "alpha", "min_rows", "poisoning"}
"""Settings that affect which client holds which rows, but not the rows themselves."""
_NOT_ALLOWED: Final = {
    "seeds": "a cell has one seed; use seed",
    "yardsticks": "a cell has one method; list yardsticks under method",
    "stream.data": "the data directory depends on the machine; give --data DIR",
}


@dataclass(frozen=True)
class Cell:
    """One method on one stream with one seed."""

    config: Config
    name: str
    """Sixteen hexadecimal digits: a hash of the settings without ``stream.data``."""

    @classmethod
    def of(cls, config: Config) -> Self:
        """The cell of a configuration.

        Its name is a hash of the settings that differ from the defaults, so a setting added later
        does not rename finished cells. Settings that were renamed count under their first names.
        """
        text = json.dumps(first_names(_chosen(config)), sort_keys=True)
        return cls(config, hashlib.sha256(text.encode()).hexdigest()[:16])

    @property
    def seed(self) -> int:
        """The one seed."""
        return self.config.seeds[0]

    @property
    def title(self) -> str:
        """The cell in words: stream, method, seed, and every setting that is not the default."""
        shown = {"stream.name", "method", "seeds", "yardsticks"}
        others = [
            f"{name} {'inf' if value is None and name == 'privacy.epsilon' else value}"
            for name, value in _chosen(self.config).items()
            if name not in shown
        ]
        stream, method = self.config.stream.name, self.config.method
        return " · ".join([stream, method, f"seed {self.seed}", *others])

    @property
    def study(self) -> Config:
        """The settings that determine the embedded stream; cells that agree in them share it."""
        stream = self.config.stream
        shared = {name: getattr(stream, name) for name in stream.model_fields_set - _NOT_READ}
        embedded = ("encoder", "encoders", "upgrade")
        settings = {name: getattr(self.config, name) for name in embedded}
        return Config(stream=StreamConfig(**shared), **settings)

    def reading(self, data: Path | None) -> Cell:
        """The same cell with ``stream.data`` set to this directory."""
        return Cell(with_settings(self.config, {"stream.data": data}), self.name)


@dataclass(frozen=True)
class Part:
    """Settings that all cells share, and lists of values for the cross product; dotted names."""

    base: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]]

    def settings(self) -> list[dict[str, Any]]:
        """What each cell of this part sets, the last name of the grid changing fastest."""
        return [
            {**self.base, **dict(zip(self.grid, values, strict=True))}
            for values in itertools.product(*self.grid.values())
        ]


@dataclass(frozen=True)
class Experiment:
    """An experiment file: its cells and its tables."""

    path: Path
    title: str
    paper: tuple[str, ...]
    reproduce: bool
    parts: tuple[Part, ...]
    tables: tuple[Mapping[str, Any], ...]
    cells: tuple[Cell, ...]
    """Every cell of every part, each once."""

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _PartOfFile(_Strict):
    base: dict[str, Any] = {}
    grid: dict[str, Any] = {}


class _File(_Strict):
    title: str = Field(min_length=1)
    paper: list[str] = []
    reproduce: bool = False
    part: list[_PartOfFile] = Field(min_length=1)
    table: list[dict[str, Any]] = []


def load_experiment(path: Path) -> Experiment:
    """Read an experiment file; a mistake in it raises a ``ConfigError`` that names the file."""
    file = _parsed(path)
    parts, cells = [], []
    for number, raw in enumerate(file.part, start=1):
        try:
            part = _part(raw)
            parts.append(part)
            cells += [_cell(settings) for settings in part.settings()]
        except ConfigError as error:
            raise ConfigError(f"{path}, part {number}: {error}") from None
    return Experiment(
        path=path,
        title=file.title,
        paper=tuple(file.paper),
        reproduce=file.reproduce,
        parts=tuple(parts),
        tables=tuple(file.table),
        cells=_once(cells),
    )


def is_marked(path: Path) -> bool:
    """Whether a TOML file has ``reproduce = true``; other files need not be experiments."""
    return _values(path).get("reproduce") is True


def all_cells(experiments: Iterable[Experiment]) -> tuple[Cell, ...]:
    """The cells of all experiments, each once, in the order in which they first occur."""
    return _once(cell for experiment in experiments for cell in experiment.cells)


def chosen(
    cells: Sequence[Cell],
    seeds: Sequence[int] = (),
    streams: Sequence[str] = (),
    methods: Sequence[str] = (),
) -> tuple[Cell, ...]:
    """The cells with one of these seeds, streams and methods; an empty list does not restrict."""
    for flag, wanted, available in (
        ("--seeds", seeds, {cell.seed for cell in cells}),
        ("--streams", streams, {cell.config.stream.name for cell in cells}),
        ("--methods", methods, {cell.config.method for cell in cells}),
    ):
        if unknown := [each for each in wanted if each not in available]:
            listed = ", ".join(map(str, sorted(available)))
            raise ConfigError(f"{flag}: no cell has {unknown[0]!r}; known values: {listed}")
    return tuple(
        cell
        for cell in cells
        if (not seeds or cell.seed in seeds)
        and (not streams or cell.config.stream.name in streams)
        and (not methods or cell.config.method in methods)
    )


def plain_config(config: Config) -> dict[str, Any]:
    """The configuration as JSON has it, without ``stream.data``; ε = ∞ is null."""
    plain: dict[str, Any] = config.model_dump(mode="json", exclude={"stream": {"data"}})
    for section in plain.values():
        if isinstance(section, dict):
            section.update(
                (name, None)
                for name, value in section.items()
                if isinstance(value, float) and not math.isfinite(value)
            )
    return plain


def _chosen(config: Config) -> dict[str, Any]:
    """The settings that differ from the defaults, by dotted names."""
    usual = dotted(plain_config(Config()))
    plain = dotted(plain_config(config))
    return {n: value for n, value in plain.items() if n not in usual or value != usual[n]}


def _values(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _parsed(path: Path) -> _File:
    try:
        return _File.model_validate(_values(path))
    except ValidationError as error:
        raise ConfigError(f"{path}: {mistakes(error, _File)}") from None


def _part(raw: _PartOfFile) -> Part:
    base, grid = dotted(raw.base), dotted(raw.grid)
    for name in (*base, *grid):
        if name in _NOT_ALLOWED:
            raise ConfigError(f"{name} cannot be set here: {_NOT_ALLOWED[name]}")
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"grid: {name} must be a list of one or more values")
        if name in base:
            raise ConfigError(f"{name} is set in both base and grid; keep one")
    return Part(base, grid)


def _cell(settings: Mapping[str, Any]) -> Cell:
    """A cell, after checking that its method and stream exist and that it is reproducible."""
    from cslr.data.streams import STREAMS
    from cslr.methods.registry import method_named

    given = dict(settings)
    if "seed" in given:
        given["seeds"] = [given.pop("seed")]
    config = load_config(None, {**given, "yardsticks": False})
    method_named(config.method)
    if config.stream.name not in STREAMS:
        streams = ", ".join(STREAMS)
        raise ConfigError(f"unknown stream {config.stream.name!r}; known streams: {streams}")
    if config.privacy.mode == "enforced":
        raise ConfigError(
            "privacy.mode: experiments cannot use enforced privacy, whose noise is not "
            "reproducible; remove it"
        )
    if config.privacy.evaluation != "stored":
        raise ConfigError("privacy.evaluate: tables require stored scores; remove it")
    return Cell.of(config)


def _once(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    return tuple({cell.name: cell for cell in cells}.values())
