"""CSLR: private federated continual learning over text.

The public names. Each is loaded when it is first used, so ``import cslr`` is light, and nothing
here loads torch before a text is encoded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cslr.api import Model, learn, load
    from cslr.config import Config, load_config
    from cslr.errors import CslrError
    from cslr.federation.simulation import Population, SimulatedCohort
    from cslr.privacy.accounting import Charge, epsilon_of
    from cslr.privacy.ledger.book import Federation, Ledger
    from cslr.privacy.ledger.records import EphemeralKeys, SeededKeys
    from cslr.privacy.mechanism import release
    from cslr.privacy.plan import Budget, Plan, calibrate, forecast
    from cslr.privacy.values import Bounded, Grid, Released, Summed, bound, plain_sum
    from cslr.protocol.agreement import Agreement
    from cslr.protocol.head import Family, Head, HeadSettings, initial_head, train_head
    from cslr.protocol.messages import with_bound
    from cslr.protocol.ports import Ask, Cohort, Examples, Request
    from cslr.protocol.public_space import Modes, PublicSpace, build_space, declare_modes
    from cslr.protocol.round import Session, contribute, replay_of
    from cslr.protocol.step1_list import ListLearner
    from cslr.protocol.step4_aggregate.estimate import Replay
    from cslr.protocol.step5_rehearse import Rehearsal, rehearse
    from cslr.seeding import Seeds

__version__ = "0.1.0"

_HOMES: Final[dict[str, tuple[str, ...]]] = {
    "cslr.api": ("Model", "learn", "load"),
    "cslr.config": ("Config", "load_config"),
    "cslr.errors": ("CslrError",),
    "cslr.federation.simulation": ("Population", "SimulatedCohort"),
    "cslr.privacy.accounting": ("Charge", "epsilon_of"),
    "cslr.privacy.ledger.book": ("Federation", "Ledger"),
    "cslr.privacy.ledger.records": ("EphemeralKeys", "SeededKeys"),
    "cslr.privacy.mechanism": ("release",),
    "cslr.privacy.plan": ("Budget", "Plan", "calibrate", "forecast"),
    "cslr.privacy.values": ("Bounded", "Grid", "Released", "Summed", "bound", "plain_sum"),
    "cslr.protocol.agreement": ("Agreement",),
    "cslr.protocol.head": ("Family", "Head", "HeadSettings", "initial_head", "train_head"),
    "cslr.protocol.messages": ("with_bound",),
    "cslr.protocol.ports": ("Ask", "Cohort", "Examples", "Request"),
    "cslr.protocol.public_space": ("Modes", "PublicSpace", "build_space", "declare_modes"),
    "cslr.protocol.round": ("Session", "contribute", "replay_of"),
    "cslr.protocol.step1_list": ("ListLearner",),
    "cslr.protocol.step4_aggregate.estimate": ("Replay",),
    "cslr.protocol.step5_rehearse": ("Rehearsal", "rehearse"),
    "cslr.seeding": ("Seeds",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Agreement",
    "Ask",
    "Bounded",
    "Budget",
    "Charge",
    "Cohort",
    "Config",
    "CslrError",
    "EphemeralKeys",
    "Examples",
    "Family",
    "Federation",
    "Grid",
    "Head",
    "HeadSettings",
    "Ledger",
    "ListLearner",
    "Model",
    "Modes",
    "Plan",
    "Population",
    "PublicSpace",
    "Rehearsal",
    "Released",
    "Replay",
    "Request",
    "SeededKeys",
    "Seeds",
    "Session",
    "SimulatedCohort",
    "Summed",
    "bound",
    "build_space",
    "calibrate",
    "contribute",
    "declare_modes",
    "epsilon_of",
    "forecast",
    "initial_head",
    "learn",
    "load",
    "load_config",
    "plain_sum",
    "rehearse",
    "release",
    "replay_of",
    "train_head",
    "with_bound",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'cslr' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
