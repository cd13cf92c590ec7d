"""The agreement and the questions of a round as bytes: safetensors, and nothing that is executed.

The agreement is sent once and named by its SHA-256. A question is then small: the task, and the
prototypes that earlier releases moved.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cslr.arrays import FloatArray
from cslr.errors import BadField, MalformedMessage, MessageTooLarge, TruncatedMessage, WrongShape
from cslr.numerics.gaussian import Gaussians
from cslr.privacy.grid import Grid
from cslr.privacy.secure_sum import Release
from cslr.protocol.agreement import Agreement
from cslr.protocol.ports import Ask
from cslr.protocol.ports import Request as TaskRequest
from cslr.protocol.public_space import Modes, PublicSpace
from cslr.protocol.resolution import Resolution
from cslr.protocol.step1_list import ListLearner
from cslr.protocol.targets import Family

__all__ = [
    "MOST_AGREEMENT",
    "MOST_QUESTION",
    "digest_of",
    "framed",
    "pack_agreement",
    "pack_question",
    "release_of",
    "unframed",
    "unpack_agreement",
    "unpack_question",
]

MOST_AGREEMENT: Final = 64 * 2**20
MOST_QUESTION: Final = 4 * 2**20
_NUMBERS: Final = ("clients", "seed", "kept", "list_bound", "clients_per_person")
_WORDS: Final = ("matcher", "second_moments", "release", "clipping")


def digest_of(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def pack_agreement(agreement: Agreement) -> bytes:
    """Everything a node needs to answer, to the last bit."""
    space, modes = agreement.space, agreement.modes
    arrays: dict[str, Any] = {
        "centre": space.centre,
        "basis": space.basis,
        "between": space.between,
        "within": space.within,
        "anchors": space.anchors,
        "group": modes.group,
        "means": modes.prototypes.mean,
        "covariances": modes.prototypes.covariance,
        "bounds": np.array(agreement.bounds, dtype=np.float64),
    }
    if modes.candidates is not None:
        arrays["candidates"] = modes.candidates
    plain = {
        **{name: getattr(agreement, name) for name in (*_NUMBERS, *_WORDS)},
        "encoder": space.encoder,
        "dimension": space.dimension,
        "groups": modes.groups,
        "from_texts": modes.from_texts,
        "learner": asdict(agreement.learner),
        "family": [agreement.family.name, agreement.family.labels],
        "resolution": asdict(agreement.resolution),
    }
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(contiguous, {"agreement": json.dumps(plain, sort_keys=True)})


def unpack_agreement(content: bytes) -> Agreement:
    """The inverse of ``pack_agreement``."""
    arrays, metadata = _opened(content, MOST_AGREEMENT)
    try:
        plain = json.loads(metadata["agreement"])
        space = PublicSpace(
            plain["encoder"],
            arrays["centre"],
            arrays["basis"],
            arrays["between"],
            arrays["within"],
            int(plain["dimension"]),
            arrays["anchors"],
        )
        modes = Modes(
            tuple(map(tuple, plain["groups"])),
            arrays["group"],
            Gaussians(arrays["means"], arrays["covariances"]),
            plain["from_texts"],
            candidates=arrays.get("candidates"),
        )
        return Agreement(
            space,
            modes,
            ListLearner(**plain["learner"]),
            family=Family(*plain["family"]),
            resolution=Resolution(**plain["resolution"]),
            bounds=tuple(float(each) for each in arrays["bounds"]),
            **{name: plain[name] for name in (*_NUMBERS, *_WORDS)},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedMessage(
            f"the agreement is not as expected: {type(error).__name__}"
        ) from None


def pack_question(task: int, means: FloatArray) -> bytes:
    """What nodes are asked about a task: means (K, r) of the prototypes."""
    return save({"means": np.ascontiguousarray(means, dtype=np.float64)}, {"task": str(task)})


def unpack_question(content: bytes, agreement: Agreement, tasks: int) -> tuple[int, FloatArray]:
    """Task and means; refused unless they fit the agreement."""
    arrays, metadata = _opened(content, MOST_QUESTION)
    number = metadata.get("task", "")
    if set(arrays) != {"means"} or not number.isdecimal() or not 0 <= int(number) < tasks:
        raise BadField("a question has a task of the charter, and the means of its prototypes")
    means = arrays["means"]
    if means.dtype != np.float64 or means.ndim != 2 or not np.isfinite(means).all():
        raise BadField("the means of a question must be finite 64-bit numbers")
    if means.shape[1] != agreement.space.dimension:
        raise WrongShape(f"means have {means.shape[1]} directions, not {agreement.space.dimension}")
    return int(number), means


def release_of(ask: Ask[TaskRequest], sigma: float) -> Release:
    """What is to be summed and published, as both sides compute it by themselves."""
    grid = Grid(ask.grid.bound, ask.grid.steps)
    return Release(ask.label, ask.request.layout.size, sigma, grid)


def framed(question: bytes, request: bytes) -> bytes:
    """Two messages in one."""
    return len(question).to_bytes(4, "little") + question + request


def unframed(content: bytes) -> tuple[bytes, bytes]:
    """The inverse of ``framed``."""
    length = int.from_bytes(content[:4], "little")
    if len(content) < 4 + length:
        raise TruncatedMessage(f"{len(content)} bytes are fewer than the {4 + length} announced")
    return content[4 : 4 + length], content[4 + length :]


def _opened(content: bytes, most: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Arrays and metadata of safetensors, which hold numbers and nothing that is executed."""
    if len(content) > most:
        raise MessageTooLarge(f"{len(content)} bytes are more than the {most} allowed")
    try:
        arrays = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        metadata = header.get("__metadata__", {})
    except (SafetensorError, ValueError, KeyError) as error:
        raise MalformedMessage(f"not a safetensors message: {type(error).__name__}") from None
    return arrays, metadata
