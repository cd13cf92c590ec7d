"""``cslr predict``: predictions of a finished run for new texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cslr.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cslr.runs.predict import Answer, Predictor

__all__ = ["predict_command"]

_AT_ONCE: Final = 256
"""Texts that are read and predicted together."""


def predict_command(
    run: Annotated[Path, typer.Argument(help="Directory of a finished run.")],
    file: Annotated[
        Path | None, typer.Argument(help="One text per line (also .gz); - is standard input.")
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="A text to classify; repeatable.")] = None,
    task: Annotated[str | None, typer.Option(help="Predict only labels of this task.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Use the head of this seed. \\[the first]")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="Use this client encoder and its own head. \\[the reference encoder]"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per text.")
    ] = False,
) -> None:
    """Predict a label, intents or entities for each text with the head of a finished run.

    FILE has one text per line (also .gz); - is standard input. A blank line gives a blank line
    (with --json an object with an empty text), so line n of the output belongs to line n of FILE.
    Predictions cost no ε, and the texts are not stored.

    Example: `cslr predict runs/my-run --text "My knee hurts when I climb stairs."`
    """
    from cslr.runs.predict import load_predictor

    predictor = load_predictor(run, seed, encoder)
    if file is None and not text:
        raise ConfigError("no text to predict; give a FILE, - for standard input, or --text")
    texts = chain(_given(text or []), _texts_in(file) if file else ())
    for answer in _in_step(predictor, texts, task):
        if answer is None:
            typer.echo(json.dumps({"text": ""}) if as_json else "")
        else:
            typer.echo(json.dumps(answer.as_json()) if as_json else answer.as_line())


def _in_step(
    predictor: Predictor, texts: Iterable[str], task: str | None
) -> Iterator[Answer | None]:
    """One answer per text, and None for a blank line."""
    waiting = iter(texts)
    while some := list(islice(waiting, _AT_ONCE)):
        answers = predictor.answers([text for text in some if text], task)
        for text in some:
            yield next(answers) if text else None


def _given(texts: list[str]) -> list[str]:
    if not all(text.strip() for text in texts):
        raise ConfigError("--text must not be empty")
    return texts


def _texts_in(file: Path) -> Iterator[str]:
    """The lines of a file, or of standard input, without white space at their ends."""
    from cslr.data.own.parse.problems import described
    from cslr.data.own.reader.lines import lines_of

    if str(file) == "-":
        for number, raw in enumerate(sys.stdin.buffer, start=1):
            try:
                text = raw.decode().strip()
            except UnicodeDecodeError:
                raise DataError(f"standard input, line {number}: not valid UTF-8") from None
            yield text
        return
    if not file.exists():
        raise DataError(f"{file}: no such file; to predict for a text itself, give --text TEXT")
    for line in lines_of(file):
        if line.problem:
            raise DataError(described(file, line.problem))
        yield line.text.strip()
