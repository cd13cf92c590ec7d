"""``learn``: checks its arguments, runs with a ledger, and returns the model."""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Mapping
from itertools import count
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal

from cslr.api.array_likes import TextsOrVectors
from cslr.api.declared import LabelTexts, TaskLabels
from cslr.api.model import Model, load
from cslr.api.persons import DeclaredPeople
from cslr.api.streamed import Arguments, encoder_name, streamed, warn_of_few
from cslr.config import Config, load_config
from cslr.errors import ConfigError, RunDirectoryError
from cslr.files import PRIVATE_FOLDER, make_directory
from cslr.privacy.plan import Unit, promise_warnings
from cslr.protocol.head import FamilyName
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import EmbeddedStream
from cslr.runs.learn import run

__all__ = ["learn"]

_OPEN: Final = ("replay.", "head.", "paper.")
"""Sections whose settings may be given by name: none of them changes ε."""


def learn(
    X: TextsOrVectors,
    y: Any,
    *,
    clients: Any,
    label_texts: LabelTexts,
    public: TextsOrVectors,
    tasks: Any = None,
    task_labels: TaskLabels | None = None,
    registered: int | None = None,
    unit: Unit = "client",
    people: Any = None,
    registered_people: int | None = None,
    clients_per_person: int = 1,
    rows_per_person: int = 1,
    tasks_per_person: int = 1,
    family: FamilyName = "classification",
    epsilon: float = 8.0,
    delta: float = 1e-5,
    adversary: Literal["roster", "public"] = "roster",
    budget: float | None = None,
    cap: int | None = None,
    ledger: str | PathLike[str] | None = None,
    simulate: bool = False,
    seed: int = 0,
    encoder: str | None = None,
    name: str = "data",
    run_dir: str | PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Model:
    """Learn a head from rows of many clients, task by task, under user-level (ε, δ)-DP.

    Rows (private):

    X: n texts, or embeddings (n, d); these are scaled to unit norm row by row.
    y: (n,) label names; with ``family="intents"`` a list of names a row, the main one first.
    clients: (n,) who holds each row.
    tasks: (n,) the task each row belongs to; None: there is one task.
    people: (n,) whom each row is about, with ``unit="person"``. Names of clients and people are
        compared after trimming and Unicode normalisation (NFC).

    Declarations (public):

    label_texts: label -> description, or its embedding (d,). It fixes the label set. A list of
        names is accepted too; then no public knowledge about labels is used.
    public: at least 100 texts or embeddings (m, d), better thousands, that are not rows of any
        client.
    task_labels: task -> its labels, in the order in which tasks are learnt; or a list of tasks
        that all have all labels.
    registered: N, all clients that may contribute.
    unit: what privacy protects: a ``"client"`` with all its rows, or one ``"person"`` inside it.
        With people, ``registered_people`` is the number of all that may contribute,
        ``clients_per_person`` the most clients that hold rows of one, ``rows_per_person`` the rows
        that one is expected to have of a task, ``tasks_per_person`` the most tasks that one
        contributes to.

    With ``simulate=True`` task_labels and the registered numbers may be left out and are then taken
    from the rows.

    Privacy: ``epsilon`` (by default 8) at ``delta`` for everything that is released, against an
    adversary who knows who takes part (``"roster"``) or does not (``"public"``). budget: the ε that
    all calls with the same ledger may spend together; None: ``epsilon``, so that a second call is
    refused.
    cap: the most tasks a unit contributes to; a smaller cap needs less noise. None: all tasks for
    clients, ``tasks_per_person`` for people.

    ledger: the directory where spending is recorded before anything is released. One data set has
    one ledger: the caller must name the same one for the same rows. Run directories are created in
    it too (``run-0``, ``run-1``, ...); repeating an interrupted call resumes it. ``run_dir`` names
    another place. simulate: noise and ledger follow from ``seed`` and protect nobody; for studies
    on public data.

    encoder: what embeds texts: ``"minilm"`` (the default), ``"mpnet"``, a directory or a hub name.
    name: the name of the data set in the ledger. settings: other settings of ``replay``, ``head``
    and ``paper`` by dotted name, e.g. ``{"replay.sub_modes": 2}``.

    Guarantee: with enforced privacy the model, the run directory and the ledger depend on rows
    through noised sums alone. Not covered are errors and warnings, which are for whoever holds the
    rows, and ``spoken.json`` beside the ledger, which enforces a cap and is as private as the rows.

    >>> import numpy as np
    >>> rng = np.random.Generator(np.random.PCG64(1))
    >>> centres, kind = np.eye(8)[:2], rng.integers(2, size=400)
    >>> z = centres[kind] + 0.2 * rng.standard_normal((400, 8))
    >>> model = learn(
    ...     z,
    ...     np.array(["left", "right"])[kind],
    ...     clients=rng.integers(40, size=400),
    ...     label_texts=dict(zip(["left", "right"], centres)),
    ...     public=rng.standard_normal((500, 8)),
    ...     epsilon=4.0,
    ...     simulate=True,
    ... )
    >>> model.predict(centres).tolist()
    ['left', 'right']
    >>> round(model.epsilon("roster"), 3)
    4.0
    """
    _check_privacy(ledger, simulate, epsilon)
    declared = DeclaredPeople(
        unit, registered_people, clients_per_person, rows_per_person, tasks_per_person
    )
    declared.check(people)
    rows = (X, y, clients, tasks, label_texts, public, task_labels, registered, family, name)
    given = Arguments(*rows, simulate, people, declared)
    chosen = encoder_name(X, encoder)
    privacy = {
        "privacy.epsilon": epsilon,
        "privacy.delta": delta,
        "privacy.adversary": adversary,
        "privacy.budget": budget,
        "privacy.cap": cap,
        "privacy.unit": unit,
        "privacy.mode": "simulated" if simulate else "enforced",
        "privacy.federation": None if ledger is None else Path(ledger),
        "privacy.evaluate": "none",
    }
    prior = "labels" if isinstance(label_texts, Mapping) else "none"
    others = {"stream.name": name, "seeds": [seed], "encoder": chosen, "replay.prior": prior}
    config = load_config(None, {**others, **_checked(settings or {}), **privacy})
    embedded = streamed(given, chosen)
    warn_of_few(embedded.public, config.replay.directions)
    stream = embedded.stream
    count = stream.clients if unit == "client" else stream.registered_people
    for weak in promise_warnings(epsilon, delta, count, unit):
        warnings.warn(weak, stacklevel=2)
    return _learnt(config, embedded, None if run_dir is None else Path(run_dir))


def _check_privacy(ledger: str | PathLike[str] | None, simulate: bool, epsilon: float) -> None:
    """Enforced privacy needs a ledger and noise; a simulation has no ledger directory."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, Real):
        raise ConfigError(f"epsilon must be a number, such as 4.0, not {epsilon!r}")
    if simulate and ledger is not None:
        raise ConfigError(
            "ledger and simulate=True contradict each other: a simulation spends nothing. Leave "
            "one of them out"
        )
    if not simulate and ledger is None:
        raise ConfigError(
            "privacy is enforced, so spending must be recorded: give ledger='DIR', one directory "
            "for all calls on these rows. For a study on public data set simulate=True"
        )
    if ledger is not None and Path(ledger).is_file():
        raise ConfigError(f"ledger={str(ledger)!r} is a file; give a directory")
    if not simulate and math.isinf(epsilon):
        raise ConfigError(
            "epsilon=inf adds no noise and protects nobody; give a number, or set simulate=True"
        )


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    for name in settings:
        if not name.startswith(_OPEN):
            raise ConfigError(
                f"settings: {name!r} is not a setting of replay, head or paper, such as "
                f"'replay.sub_modes'; everything else is an argument"
            )
    return dict(settings)


def _learnt(config: Config, embedded: EmbeddedStream, run_dir: Path | None) -> Model:
    """Run in the given directory, in that of the ledger, or in a temporary one."""
    if run_dir is None and config.privacy.federation is None:
        with tempfile.TemporaryDirectory() as folder:
            return _learnt(config, embedded, Path(folder) / "run")
    directory = _own_directory(config) if run_dir is None else RunDirectory(run_dir, config)
    run(config, embedded, directory, lambda what, done, total: None)
    return load(directory.path)


def _own_directory(config: Config) -> RunDirectory:
    """A new run directory beside the ledger, or an interrupted one of the same configuration."""
    ledger = config.privacy.federation
    if ledger is None:
        raise ValueError("config.privacy.federation must name a directory")
    make_directory(ledger, PRIVATE_FOLDER)
    for number in count():
        path = ledger / f"run-{number}"
        if not path.exists():
            break
        try:
            directory = RunDirectory(path, config)
        except RunDirectoryError:
            continue
        if directory.find(kind="finished") is None:
            return directory
    return RunDirectory(path, config)
