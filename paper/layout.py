"""Lay out a ``[[table]]`` of an experiment: which cell's figure is in which row and column.

[[table]]
name = "main"                       # of the files
caption = "..."
rows = "method"                     # dotted settings; several make a row of several names
columns = "stream.name"
value = "aa"                        # or several, with "value" among the rows or columns
where = { method = ["cslr"] }       # leave out cells with other values of these settings
kind = "scores"                     # or "effects" (of, against), or "accountant"
note = "..."                        # one more sentence below the table
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from cslr.errors import ConfigError
from cslr.research.experiments.grid import Cell, Experiment
from paper.figure import Figure
from paper.names import called, key_of, measure_named, setting_of
from paper.sheet import Entry, Sheet
from paper.traces import Trace

__all__ = ["Layout", "Spec", "arrange", "cells_of", "sheet_of", "specs"]

Keys = tuple[str, ...]


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_several)]


class Spec(BaseModel):
    """A ``[[table]]``, checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    caption: str
    kind: Literal["scores", "effects", "accountant"] = "scores"
    rows: Names = ("method",)
    columns: Names = ("stream.name",)
    value: Names = ("aa",)
    where: dict[str, Any] = {}
    note: str = ""
    of: Names = ()
    """effects: the methods whose gain is shown."""
    against: Names = ()
    """effects: the methods with which each is compared."""
    axis: str = "method"
    """effects: the setting that ``of`` and ``against`` are values of."""


@dataclass(frozen=True)
class Layout:
    """The figures of a table by row and column; no entry where no cell belongs."""

    rows: tuple[Keys, ...]
    columns: tuple[Keys, ...]
    entries: Mapping[tuple[Keys, Keys], Figure]


def specs(experiment: Experiment) -> tuple[Spec, ...]:
    """The tables of an experiment; a mistake raises an error that names file and table."""
    found = []
    for number, raw in enumerate(experiment.tables, start=1):
        try:
            found.append(Spec.model_validate(raw))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ConfigError(
                f"{experiment.path}, table {number}: {where}: {first['msg']}"
            ) from None
    return tuple(found)


def cells_of(experiment: Experiment, spec: Spec) -> tuple[Cell, ...]:
    """The cells of a table."""
    wanted = {
        name: {key_of(each) for each in (values if isinstance(values, list) else [values])}
        for name, values in spec.where.items()
    }
    return tuple(
        cell
        for cell in experiment.cells
        if all(_key(experiment, spec, cell, name) in keys for name, keys in wanted.items())
    )


def arrange(experiment: Experiment, spec: Spec, traces: Mapping[str, Trace]) -> Layout:
    """Put every cell into its place; an error for two different settings in one place."""
    if len(spec.value) > 1 and "value" not in (*spec.rows, *spec.columns):
        raise ConfigError(
            f'{experiment.path}, table {spec.name}: several values need "value" in rows or columns'
        )
    held: dict[tuple[Keys, Keys], dict[int, Cell]] = {}
    measures: dict[tuple[Keys, Keys], str] = {}
    for cell in cells_of(experiment, spec):
        for value in spec.value:
            place = (
                _keys(experiment, spec, cell, spec.rows, value),
                _keys(experiment, spec, cell, spec.columns, value),
            )
            _put(experiment, spec, held.setdefault(place, {}), cell)
            measures[place] = value
    entries = {place: _figure(measures[place], cells, traces) for place, cells in held.items()}
    rows = tuple(dict.fromkeys(row for row, _ in entries))
    columns = tuple(dict.fromkeys(column for _, column in entries))
    return Layout(rows, columns, entries)


def sheet_of(
    experiment: Experiment, spec: Spec, layout: Layout, notes: tuple[str, ...] = ()
) -> Sheet:
    """The layout as a sheet, with readable names."""
    header = [_axis(name) for name in spec.rows]
    header += [_shown(spec.columns, keys) for keys in layout.columns]
    rows: list[tuple[Entry, ...]] = []
    for row in layout.rows:
        names = [called(axis, key) for axis, key in zip(spec.rows, row, strict=True)]
        rows.append((*names, *[layout.entries.get((row, column), "") for column in layout.columns]))
    measured = "" if len(spec.value) > 1 else f" Shown: {measure_named(spec.value[0]).title}."
    return Sheet(
        f"{experiment.name}-{spec.name}",
        experiment.title,
        f"{spec.caption}{measured}",
        tuple(header),
        tuple(rows),
        notes,
    )


def _figure(measure: str, cells: Mapping[int, Cell], traces: Mapping[str, Trace]) -> Figure:
    by_seed = {
        seed: traces[cell.name].value(measure)
        for seed, cell in sorted(cells.items())
        if cell.name in traces
    }
    return Figure(measure_named(measure), by_seed, tuple(sorted(cells)))


def _put(experiment: Experiment, spec: Spec, held: dict[int, Cell], cell: Cell) -> None:
    """Add a cell to a place; an error if its settings differ there in more than the seed."""
    for other in held.values():
        if other.config.model_copy(update={"seeds": cell.config.seeds}) != cell.config:
            raise ConfigError(
                f"{experiment.path}, table {spec.name}: two settings in one place, "
                f"{other.title!r} and {cell.title!r}; name what differs in rows, columns or where"
            )
    held[cell.seed] = cell


def _keys(experiment: Experiment, spec: Spec, cell: Cell, axes: Keys, value: str) -> Keys:
    return tuple(value if axis == "value" else _key(experiment, spec, cell, axis) for axis in axes)


def _key(experiment: Experiment, spec: Spec, cell: Cell, name: str) -> str:
    try:
        return key_of(setting_of(cell.config, name))
    except AttributeError:
        raise ConfigError(
            f"{experiment.path}, table {spec.name}: {name!r} is not a setting"
        ) from None


def _axis(name: str) -> str:
    special = {"value": "", "stream.name": "stream"}
    return special.get(name, name.split(".")[-1].replace("_", " "))


def _shown(axes: Keys, keys: Keys) -> str:
    return ", ".join(called(axis, key) for axis, key in zip(axes, keys, strict=True))
