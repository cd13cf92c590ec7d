"""The paper's printed numbers, as data (``experiments/paper.toml``)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from cslr.errors import ConfigError
from paper.accountant import Promise

__all__ = ["Number", "Paper", "PaperTable", "Reason", "load_paper"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Number(_Strict):
    """One printed number; ``row`` and ``column`` are the keys of our table."""

    row: str
    column: str
    value: float
    sd: float | None = None
    low: float | None = None
    high: float | None = None


class Reason(_Strict):
    """Why our numbers may differ from printed ones; empty ``rows`` or ``columns`` mean all."""

    text: str
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def about(self, number: Number) -> bool:
        """Whether the reason applies to this number."""
        rows, columns = self.rows or (number.row,), self.columns or (number.column,)
        return number.row in rows and number.column in columns


class Instead(_Strict):
    """Another experiment of ours, in which some rows of a table of the paper can be tested."""

    experiment: str
    table: str
    row: str
    """The key of our row; for effects and margins the method that ``of`` is compared with."""
    of: str = ""


class PaperTable(_Strict):
    """A table or figure of the paper, and our table that corresponds to it."""

    label: str
    title: str
    kind: Literal["scores", "counts", "effects", "margins", "accountant", "quantile", "given"] = (
        "scores"
    )
    experiment: str = ""
    table: str = ""
    also: dict[str, tuple[str, ...]] = {}
    against: dict[str, tuple[str, ...]] = {}
    instead: dict[str, Instead] = {}
    """Other experiments of ours by row of the paper."""
    numbers: tuple[Number, ...]
    reason: tuple[Reason, ...] = ()

    def number(self, row: str, column: str) -> Number:
        """The number printed in this row and column."""
        (found,) = (n for n in self.numbers if (n.row, n.column) == (row, column))
        return found

    def column(self, column: str) -> dict[str, Number]:
        """The numbers of one column by row."""
        return {n.row: n for n in self.numbers if n.column == column}


@dataclass(frozen=True)
class Paper:
    """All tables of the paper by label."""

    tables: dict[str, PaperTable]

    def number(self, label: str, row: str, column: str) -> Number:
        """One printed number."""
        return self.tables[label].number(row, column)

    @property
    def promises(self) -> tuple[Promise, ...]:
        """The columns of the noise table."""
        table = self.tables["tab:accountant"]
        return tuple(
            Promise(
                float(each.column),
                each.value,
                table.number("q", each.column).value,
                table.number("delta", each.column).value,
            )
            for each in table.numbers
            if each.row == "sigma"
        )


def load_paper(path: Path) -> Paper:
    """Read the file; an error if a table has two numbers in one place."""
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        tables = [PaperTable.model_validate(each) for each in values["table"]]
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, KeyError, ValidationError) as error:
        raise ConfigError(f"{path} is not a list of the paper's tables: {error}") from None
    for table in tables:
        places = [(number.row, number.column) for number in table.numbers]
        if len(set(places)) < len(places):
            raise ConfigError(f"{path}: {table.label} has two numbers in one place")
    return Paper({table.label: table for table in tables})
