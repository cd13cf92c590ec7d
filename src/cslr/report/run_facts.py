"""The facts of a run for a report, read from the files of its directory alone, partly as sentences.

The sentences are the privacy statement, ε by adversary, and who sees which message.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.config import Config, dotted
from cslr.errors import CslrError, RunDirectoryError
from cslr.files import open_arrays, seal_arrays, write_atomic
from cslr.privacy.accounting import Charge, epsilon_of
from cslr.privacy.ledger.book import Ledger
from cslr.protocol.messages import MessageKind, messages_of
from cslr.runs.directory import ledgers_of, read_trace
from cslr.runs.results import StoredRun, read_run

if TYPE_CHECKING:
    from cslr.runs.embedded import EmbeddedStream

__all__ = [
    "CLOUD_FILE",
    "RunFacts",
    "Spending",
    "adversaries",
    "command_of",
    "match_words",
    "privacy_words",
    "read_facts",
    "save_clouds",
    "who_sees_what",
]

CLOUD_FILE = "clouds.safetensors"
"""In a simulation only: true rows, projected to the plane of the map."""
_EACH: Final = 60
"""Rows of each label that are drawn at most."""

_FLAGS: Final = {
    "stream.name": "stream",
    "stream.data": "data",
    "stream.clients": "clients",
    "privacy.epsilon": "epsilon",
    "privacy.delta": "delta",
    "privacy.unit": "unit",
    "privacy.mode": "privacy",
    "method": "method",
    "encoder": "encoder",
}
"""Settings that have a flag of their own in ``cslr run``."""


@dataclass(frozen=True)
class Spending:
    """The charges of a ledger, and ε task by task."""

    charges: tuple[Charge, ...]
    after: tuple[float, ...]
    """ε against the roster after each group of consecutive releases about one task."""
    groups: tuple[str, ...]
    """The task (or evaluation) that each group is about."""
    cap: int | None


@dataclass(frozen=True, eq=False)
class RunFacts:
    """The facts of a finished run."""

    run: StoredRun
    result: dict[str, Any]
    tasks: tuple[str, ...]
    labels: tuple[str, ...]
    matrices: dict[str, list[list[float | None]]]
    """a[r, j] of the method and its yardsticks, the method first; empty if not stored."""
    spending: Spending | None
    picture: Mapping[str, FloatArray] | None
    cloud: tuple[FloatArray, FloatArray] | None
    diagnosis: Mapping[str, float]

    @property
    def name(self) -> str:
        """The name of the run's directory."""
        return self.run.path.resolve().name

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.run.config


def read_facts(path: Path) -> RunFacts:
    """The facts of the finished run in a directory."""
    run = read_run(path)
    if run.result is None:
        raise RunDirectoryError(
            f"the run in {path} is not finished; repeat its command with --run-dir {path}"
        )
    result = run.result
    first = path / f"seed-{run.config.seeds[0]}"
    cloud = _arrays(first / CLOUD_FILE) if run.config.privacy.mode == "simulated" else None
    return RunFacts(
        run,
        result,
        tuple(result.get("tasks") or [f"task {j + 1}" for j in range(len(result["matrix"][0]))]),
        tuple(result["labels"]),
        _matrices(result),
        _spending(path),
        _arrays(first / "picture.safetensors"),
        None if cloud is None else (cloud["points"], cloud["labels"]),
        _diagnosis(path),
    )


def command_of(config: Config) -> str:
    """A command that repeats the run: every setting that differs from the default."""
    usual, found = (dotted(each.model_dump(mode="json")) for each in (Config(), config))
    changed = [(name, value) for name, value in found.items() if usual.get(name) != value]
    own_rows = config.stream.declaration is not None
    if own_rows:  # the declaration determines these
        changed = [each for each in changed if each[0].split(".")[0] not in ("stream", "privacy")]
    else:  # always named, because the default unit depends on the stream
        changed = [each for each in changed if each[0] != "privacy.unit"]
        changed.append(("privacy.unit", config.privacy.unit))
    settings = [_option(name, value) for name, value in changed]
    data = [f"--data {shlex.quote(str(config.stream.data))}"] if own_rows else []
    return " ".join(["cslr run", *data, *settings])


def _option(name: str, value: Any) -> str:
    """A setting as its own flag, or with --set."""
    if name == "seeds":
        return f"--seeds {','.join(map(str, value))}"
    if name in _FLAGS and value is not None:
        return f"--{_FLAGS[name]} {shlex.quote(_toml(value))}"
    return f"--set {shlex.quote(f'{name}={_toml(value)}')}"


def _toml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value).replace("Infinity", "inf")


def _matrices(result: Mapping[str, Any]) -> dict[str, list[list[float | None]]]:
    found = {result["method"]: result["matrix"]}
    found |= {name: each["matrix"] for name, each in result["yardsticks"].items()}
    return {
        name: matrix
        for name, matrix in found.items()
        if any(value is not None for row in matrix for value in row)
    }


def _spending(path: Path) -> Spending | None:
    """The spending of a run; None if its ledger cannot be read, for example if it was moved."""
    try:
        ledger = Ledger.read(ledgers_of(path)[0])
    except (CslrError, OSError):
        return None
    charges, cap = ledger.charges, ledger.effective_cap
    after: list[float] = []
    groups: list[str] = []
    for number, charge in enumerate(charges):
        about = "evaluation" if charge.task is None else f"task {charge.task + 1}"
        if groups and groups[-1] == about:
            after.pop()
        else:
            groups.append(about)
        delta = ledger.federation.budget.delta
        after.append(epsilon_of(charges[: number + 1], delta, "roster", cap=cap))
    return Spending(charges, tuple(after), tuple(groups), cap)


def _arrays(file: Path) -> Mapping[str, FloatArray] | None:
    if not file.is_file():
        return None
    try:
        return open_arrays(file.read_bytes())
    except ValueError:
        raise RunDirectoryError(f"{file} is damaged; repeat the run in a new directory") from None


def _diagnosis(path: Path) -> Mapping[str, float]:
    """How well candidates were matched after the last task; empty if that was not measured."""
    trace, _ = read_trace(path / "trace.jsonl")
    found = [line for line in trace if line["kind"] == "diagnosis"]
    names = ("alignment", "by_chance", "hit_rate", "margin")
    return {name: found[-1][name] for name in names if name in found[-1]} if found else {}


def save_clouds(run: Path, config: Config, embedded: EmbeddedStream) -> None:
    """NON-PRIVATE. Write a sample of true rows next to the picture of the first seed.

    Nothing is written if privacy is enforced, or if clients have several encoders, whose rows one
    plane cannot show.
    """
    directory = run / f"seed-{config.seeds[0]}"
    picture = directory / "picture.safetensors"
    if config.privacy.mode != "simulated" or config.encoders or not picture.is_file():
        return
    arrays = open_arrays(picture.read_bytes())
    labels = embedded.train.labels
    kinds = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    chosen = np.concatenate([rows[:: max(1, len(rows) // _EACH)][:_EACH] for rows in kinds])
    points = (embedded.train.z[chosen] - arrays["origin"]) @ arrays["plane"]
    drawn = {"points": points.astype(np.float64), "labels": labels[chosen].astype(np.float64)}
    write_atomic(directory / CLOUD_FILE, seal_arrays(drawn))


# -- the facts as sentences ------------------------------------------------------------------------

_ADVERSARIES: Final = {
    "public": "what is published, not who took part",
    "roster": "also who took part",
    "server": "what reaches the aggregator, which adds the noise",
}


def privacy_words(facts: RunFacts) -> list[str]:
    """The privacy statement, sentence by sentence."""
    result, privacy = facts.result, facts.config.privacy
    unit = "client with all its rows" if privacy.unit == "client" else "person inside a client"
    costs = result["epsilon"].get("end_to_end", {})
    promise = (
        f"Unit of privacy: one {unit}; {result.get('units', '?')} are registered. Everything "
        "released over all tasks, and the head, is (ε, δ)-DP with "
        f"ε = {_epsilon(costs.get('roster'))} against an adversary who knows who took part, and "
        f"δ = {result['delta']:g} (zero-out adjacency)."
        f"{_factor(privacy.unit, costs.get('roster'))}"
    )
    return [promise, _mode(facts), _scores(facts)]


def _factor(unit: str, epsilon: float | None) -> str:
    """A sentence on what a finite ε means for probabilities."""
    if not epsilon:
        return ""
    value = math.exp(min(epsilon, 700.0))
    shown = f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    return (
        f" Leaving out the rows of one {unit} changes the probability of any outcome by at most "
        f"a factor of e^ε = {shown}, up to δ."
    )


def adversaries(facts: RunFacts) -> list[tuple[str, str, str]]:
    """(adversary, what it sees, ε end to end)."""
    costs = facts.result["epsilon"].get("end_to_end", {})
    return [(who, sees, _epsilon(costs.get(who))) for who, sees in _ADVERSARIES.items()]


def _mode(facts: RunFacts) -> str:
    if facts.config.privacy.mode == "simulated":
        return (
            "Privacy was simulated: one process and seeded noise, for a study of utility. Nobody "
            "was protected by this run."
        )
    return "Privacy was enforced: noise came from the operating system, and the ledger was charged."


def _scores(facts: RunFacts) -> str:
    rule = facts.result.get("evaluate", "stored")
    return {
        "stored": "Scores in this report are exact figures on test rows; ε does not cover them.",
        "shown": "Exact scores were shown on the screen only; they are not stored.",
        "private": "The score is a noisy count that was charged to the budget; ε covers it.",
        "none": "Nothing was evaluated.",
    }[rule]


def who_sees_what(facts: RunFacts) -> str:
    """A round as boxes in order: what clients keep, what leaves them, and who can see it."""
    charges = facts.spending.charges if facts.spending else ()
    kinds = list(dict.fromkeys(messages_of(charge)[0] for charge in charges))
    boxes = [
        ("Client: rows and embeddings", "Never leave the client.", "nobody else"),
        *[_message(kind) for kind in kinds],
        (
            "Published: noised releases",
            "Replay and head are computed from these alone, at no further cost.",
            "everybody; this is what ε is about",
        ),
    ]
    items = "".join(
        f"<li><strong>{escape(title)}</strong>{escape(text)}"
        f'<span class="seen">Seen by {escape(seen)}.</span></li>'
        for title, text, seen in boxes
    )
    return f'<ol class="flow">{items}</ol>'


def _message(kind: MessageKind) -> tuple[str, str, str]:
    noise = {
        "aggregator": "The aggregator adds noise to the sum, once.",
        "device": "The client adds the noise itself.",
        "nobody": "Nobody adds noise.",
    }[kind.noised_by]
    seen = kind.seen_by if kind.seen_by != "nobody" else "nobody without the noise"
    return f"Leaves: {kind.name}", f"Bounded by {kind.clipped_by}. {noise}", seen


def match_words(facts: RunFacts) -> str:
    """A sentence on how well candidates were matched; empty if it was not measured."""
    known = facts.diagnosis
    if "alignment" not in known:
        return ""
    text = (
        f"Simulation only: {100 * known['alignment']:.0f} % of the candidates' weight was matched "
        f"to the mode of their true kind; one mode for all would give "
        f"{100 * known['by_chance']:.0f} %."
    )
    if "hit_rate" in known:
        text += f" Share of anchors that separate a pair of kinds: {known['hit_rate']:.2f}."
    return text


def _epsilon(value: float | None) -> str:
    return "∞" if value is None else f"{value:.3g}"
