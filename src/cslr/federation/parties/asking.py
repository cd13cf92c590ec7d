"""The three questions that nodes answer, as bytes and back: statistics, gradients, right answers.

The server packs a question (``pack_ask``). A node takes only public numbers from its bytes; label,
clip, charge and σ, which protect the node, it takes from its own charter (``asked``). Lists and
clients' own training steps are not asked for across machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from safetensors.numpy import save

from cslr.arrays import FloatArray
from cslr.errors import BadField, PrivacyError, TermsDiffer, WrongShape
from cslr.federation.parties.charter import Charter
from cslr.federation.parties.question import MOST_QUESTION, opened
from cslr.privacy.accounting import Charge
from cslr.privacy.secure_sum import Release
from cslr.privacy.values import Grid
from cslr.protocol.agreement import Agreement
from cslr.protocol.evaluation import GRID, LABEL, Exam
from cslr.protocol.ports import Ask
from cslr.protocol.ports import Request as TaskRequest
from cslr.protocol.round import sum_ask
from cslr.protocol.step5_rounds import GradientRound, LinearSpace, trained_outputs
from cslr.protocol.updates import UpdateId, update_ask

__all__ = ["Asked", "asked", "pack_ask", "pack_statistics", "release_of"]

LARGEST: Final = 2.0**64
"""The largest absolute value in a question, and the inverse of the least size of inputs. Nothing
computed from numbers within it overflows, whatever the rows are. With larger numbers a server could
make an answer overflow, and so be refused, depending on single rows."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A question after a node checked it, with what its own charter says about it."""

    ask: Ask[Any]
    task: int
    """The task whose rows answer it; -1 for an evaluation, which is about test rows."""
    charge: Charge
    release: Release
    head: str = ""
    """SHA-256 of the head's file, for an evaluation."""


def release_of(ask: Ask[Any], sigma: float) -> Release:
    """What is to be summed and published; each side computes it itself."""
    return Release(ask.label, _size_of(ask), sigma, Grid(ask.grid.bound, ask.grid.steps))


def _size_of(ask: Ask[Any]) -> int:
    match ask.request:
        case TaskRequest() if ask.kind == "sum":
            return ask.request.layout.size
        case GradientRound():
            return ask.request.size
        case Exam():
            return 2 * ask.request.tasks
    raise PrivacyError(
        f"{ask.label!r} is a question of kind {ask.kind!r}; across machines nodes answer with "
        "noised sums of statistics, of gradients or of right answers: use --head released or rounds"
    )


def pack_ask(ask: Ask[Any], head: str = "") -> bytes:
    """A question as bytes. head: SHA-256 of the head's file, for an evaluation."""
    request = ask.request
    match request:
        case TaskRequest():
            return pack_statistics(request.task, request.prototypes.mean)
        case GradientRound():
            task, number = (int(word) for word in ask.label.split() if word.isdecimal())
            space = request.space
            arrays = {"weights": request.weights, "centre": space.centre}
            arrays["size"] = np.array([space.size])
            names = {"kind": "gradient", "task": str(task), "round": str(number)}
        case _:
            arrays = {"tasks": np.array([float(request.tasks)])}
            names = {"kind": "evaluation", "head": head}
    return _saved(arrays, names)


def pack_statistics(task: int, means: FloatArray) -> bytes:
    """The question for statistics of a task: means (K, r) of its prototypes."""
    return _saved({"means": means}, {"kind": "statistics", "task": str(task)})


def _saved(arrays: Mapping[str, FloatArray], names: dict[str, str]) -> bytes:
    plain = {name: np.ascontiguousarray(each, dtype=np.float64) for name, each in arrays.items()}
    return save(plain, names)


def asked(content: bytes, charter: Charter, agreement: Agreement) -> Asked:
    """A question, refused unless it fits the charter and the agreement that this node pinned."""
    arrays, names = opened(content, MOST_QUESTION)
    kind = names.get("kind", "")
    expected = _ARRAYS.get(kind)
    if expected is None or set(arrays) != expected:
        raise BadField(f"a question of kind {kind[:20]!r} is not one that this node answers")
    for array in arrays.values():
        # A NaN fails the comparison and is refused, too.
        if array.dtype != np.float64 or not (np.abs(array) <= LARGEST).all():
            raise BadField("the numbers of a question must be 64-bit numbers of at most 2^64")
    if kind == "statistics":
        found = _statistics(arrays["means"], _number(names, "task"), charter, agreement)
    elif kind == "gradient":
        place = _number(names, "task"), _number(names, "round")
        found = _gradient(arrays, place, charter, agreement)
    else:
        found = _evaluation(arrays["tasks"], charter)
    ask, charge, task = found
    if charge.sigma is None:
        raise TermsDiffer(f"no question of kind {kind!r} was agreed on")
    release = release_of(ask, charge.sigma)
    if release.coordinates > charter.coordinates:
        raise TermsDiffer(f"{release.coordinates} coordinates; {charter.coordinates} were agreed")
    return Asked(ask, task, charge, release, names.get("head", ""))


_ARRAYS: Mapping[str, set[str]] = {
    "statistics": {"means"},
    "gradient": {"weights", "centre", "size"},
    "evaluation": {"tasks"},
}


def _number(names: Mapping[str, str], name: str) -> int:
    given = names.get(name, "")
    if not given.isdecimal() or len(given) > 6:
        raise BadField(f"a question must name its {name} by a number")
    return int(given)


def _statistics(
    means: FloatArray, task: int, charter: Charter, agreement: Agreement
) -> tuple[Ask[Any], Charge, int]:
    labels = _labels_of(task, charter)
    expected = agreement.request(task, labels).prototypes.mean.shape
    if means.shape != expected:
        raise WrongShape(f"the prototypes of task {task} have the shape {expected}")
    ask = sum_ask(agreement.request(task, labels, means))
    return ask, charter.plan.charge(ask.label, task), task


def _labels_of(task: int, charter: Charter) -> tuple[int, ...]:
    if task >= len(charter.tasks):
        raise BadField(f"task {task} is not one of the {len(charter.tasks)} agreed on")
    return charter.tasks[task].labels


def _gradient(
    arrays: Mapping[str, FloatArray],
    place: tuple[int, int],
    charter: Charter,
    agreement: Agreement,
) -> tuple[Ask[Any], Charge, int]:
    task, number = place
    labels = _labels_of(task, charter)
    if number >= charter.rounds:
        raise TermsDiffer(f"round {number}; {charter.rounds} of each task were agreed")
    weights, centre, size = arrays["weights"], arrays["centre"], arrays["size"]
    family, inputs = agreement.family, len(agreement.space.centre)
    shapes = (weights.shape, centre.shape, size.shape)
    if shapes != ((inputs + 1, family.outputs), (inputs,), (1,)) or size[0] < 1 / LARGEST:
        raise WrongShape(f"weights of the shape {weights.shape} do not fit this federation")
    nothing = np.zeros((0, 0))  # directions and variances only serve the server's step
    space = LinearSpace(centre, float(size[0]), nothing, nothing)
    question = GradientRound(weights, space, family, trained_outputs(family, labels))
    update = UpdateId(task, number, charter.units)
    ask = update_ask(update, question, charter.clip, agreement.clients_per_person)
    return ask, charter.plan.head_charge(ask.label, task, number), task


def _evaluation(tasks: FloatArray, charter: Charter) -> tuple[Ask[Any], Charge, int]:
    if tasks.shape != (1,) or tasks[0] != len(charter.tasks):
        raise TermsDiffer(f"an evaluation is about all {len(charter.tasks)} tasks")
    ask = Ask(LABEL, "evaluation", Exam(len(charter.tasks)), GRID)
    return ask, charter.plan.evaluation_charge(LABEL), -1
