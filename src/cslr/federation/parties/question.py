"""The agreement as bytes: safetensors, and nothing that is executed.

It is sent once and identified by its SHA-256, so that the questions of a round (``asking``) are
small.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cslr.errors import MalformedMessage, MessageTooLarge, TruncatedMessage
from cslr.numerics.mixture import Gaussians
from cslr.protocol.agreement import Agreement
from cslr.protocol.head import Family
from cslr.protocol.public_space import Modes, PublicSpace
from cslr.protocol.step1_list import ListLearner
from cslr.protocol.step4_aggregate.contribution import Resolution

__all__ = [
    "MOST_AGREEMENT",
    "MOST_QUESTION",
    "digest_of",
    "framed",
    "opened",
    "pack_agreement",
    "unframed",
    "unpack_agreement",
]

MOST_AGREEMENT: Final = 64 * 2**20
MOST_QUESTION: Final = 4 * 2**20
_NUMBERS: Final = ("clients", "seed", "kept", "list_bound", "clients_per_person")
_WORDS: Final = ("matcher", "second_moments", "release", "clipping")


def digest_of(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def pack_agreement(agreement: Agreement) -> bytes:
    """Everything that a node needs to answer, without rounding."""
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
    arrays, metadata = opened(content, MOST_AGREEMENT)
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


def framed(question: bytes, request: bytes) -> bytes:
    """Two messages in one."""
    return len(question).to_bytes(4, "little") + question + request


def unframed(content: bytes) -> tuple[bytes, bytes]:
    """The inverse of ``framed``."""
    length = int.from_bytes(content[:4], "little")
    if len(content) < 4 + length:
        raise TruncatedMessage(f"{len(content)} bytes are fewer than the {4 + length} announced")
    return content[4 : 4 + length], content[4 + length :]


def opened(content: bytes, most: int) -> tuple[dict[str, Any], dict[str, str]]:
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
