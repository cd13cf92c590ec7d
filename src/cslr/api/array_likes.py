"""Validation of arguments: texts or embeddings, names, and the labels of rows.

Messages name the argument and the row, counted from 0. They may quote a name, never a row's text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from cslr.arrays import FloatArray
from cslr.errors import DataError
from cslr.text.cache import unit_rows

__all__ = ["TextsOrVectors", "names_of", "outcomes_of", "texts_or_vectors", "unit_names_of"]

TextsOrVectors: TypeAlias = Sequence[str] | ArrayLike
"""n texts, or embeddings (n, d)."""
_SHOWN: Final = 60


def texts_or_vectors(values: Any, argument: str) -> tuple[str, ...] | FloatArray:
    """Texts unchanged, or embeddings (n, d) float32, each scaled to unit norm as encoders do.

    Scaling a row uses that row alone.
    """
    if isinstance(values, str):
        raise DataError(f"{argument} is one string; give a list of texts")
    if not hasattr(values, "__len__"):
        values = list(values)
    if len(values) and all(isinstance(value, str) for value in values):
        return tuple(str(value) for value in values)
    try:
        z = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"{argument} must be a list of texts or an array (n, d) of embeddings; it is neither"
        ) from None
    if z.ndim != 2 or not z.shape[1]:
        raise DataError(f"{argument} must be an array (n, d) of embeddings, not of shape {z.shape}")
    norms = np.linalg.norm(z, axis=1)
    bad = np.flatnonzero(~np.isfinite(norms) | (norms == 0))
    if len(bad):
        raise DataError(
            f"{argument}, row {bad[0]}: the embedding is not finite or all zero; remove the row or "
            f"embed it again"
        )
    return unit_rows(z, np.arange(len(z) + 1), argument)


def names_of(values: Any, argument: str, count: int) -> list[str]:
    """One name per row; numbers are converted to names."""
    names = _one_a_row(values, argument, count)
    for row, name in enumerate(names):
        if name is None or name != name or str(name).strip() == "":
            raise DataError(f"{argument}, row {row}: the name is missing; give every row one")
    return [str(name) for name in names]


def _spelt(name: Any) -> Any:
    """Whole numbers as integers, so that 3 and 3.0 are the same name."""
    whole = isinstance(name, float | np.floating) and float(name).is_integer()
    return int(name) if whole else name


def unit_names_of(values: Any, argument: str, count: int) -> list[str]:
    """Names of clients or people, normalised as for rows from a file: trimmed, in Unicode NFC.

    Otherwise two spellings of a name would be two units, and the promise would hold for each alone.
    """
    spelt = [_spelt(value) for value in _one_a_row(values, argument, count)]
    names = names_of(spelt, argument, count)
    return [unicodedata.normalize("NFC", name).strip() for name in names]


def outcomes_of(
    values: Any, family: str, label_names: Sequence[str], count: int
) -> tuple[tuple[int, ...], ...]:
    """The labels of each row as numbers: one, or for intents at least one, the main one first."""
    places = {name: index for index, name in enumerate(label_names)}
    outcomes = []
    for row, value in enumerate(_one_a_row(values, "y", count)):
        several = not isinstance(value, str) and isinstance(value, Iterable)
        if several and family == "classification":
            raise DataError(
                f"y, row {row}: a list of labels; for several labels per row use family='intents'"
            )
        labels = list(value) if several else [value]
        if not labels:
            raise DataError(f"y, row {row}: no label; every row needs at least one")
        for label in labels:
            _check_label(label, row, places)
        outcomes.append(tuple(places[label] for label in dict.fromkeys(labels)))
    return tuple(outcomes)


def _one_a_row(values: Any, argument: str, count: int) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise DataError(f"{argument} must be a sequence with one entry per row of X")
    rows = list(values)
    if len(rows) != count:
        raise DataError(f"{argument} has {len(rows)} entries, X has {count} rows; give one per row")
    return rows


def _check_label(label: object, row: int, places: dict[str, int]) -> None:
    if not isinstance(label, str):
        raise DataError(
            f"y, row {row}: labels must be strings, not {type(label).__name__}; use str(label) "
            f"here and in label_texts"
        )
    if label not in places:
        raise DataError(
            f"y, row {row}: label {_quoted(label)} is not declared in label_texts; labels: "
            f"{', '.join(places)}"
        )


def _quoted(name: str) -> str:
    """A name for messages: escaped and shortened."""
    text = repr(str(name))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
