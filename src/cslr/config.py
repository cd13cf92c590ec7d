"""The configuration of a run. Only the settings of ``[privacy]`` change ε.

Flags override the TOML file, which overrides the defaults; an unknown key is an error that lists
the known ones.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from cslr.errors import ConfigError
from cslr.paper_constants import THE_PAPERS, PaperConstants

__all__ = [
    "Config",
    "Evaluate",
    "HeadConfig",
    "PrivacyConfig",
    "ReplayConfig",
    "StreamConfig",
    "dotted",
    "load_config",
    "mistakes",
    "nested",
    "with_settings",
]


def dotted(values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Nested tables as dotted names: ``stream.name = ...`` without quotes is a table in TOML."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{where}{key}"
        flat.update(dotted(value, f"{name}.") if isinstance(value, Mapping) else {name: value})
    return flat


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as tables; ``ValueError`` where one name is a setting and a table."""
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *sections, key = name.split(".")
        target = nested
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise ValueError(f"{section} must be a table, [{section}]")
        target[key] = value
    return nested


Evaluate = Literal["shown", "stored", "private", "none"]

_ANCHORS: Final = {
    "signature": "sentences",
    "signature-synthetic": "synthetic",
    "signature-random": "random",
}
"""Matchers by signature, and the kind of anchors that each takes signatures at."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class StreamConfig(_Section):
    """The tasks of a run and the clients that hold their rows. All of it is public."""

    name: str = "clinic"
    data: Path | None = None
    """Directory of data sets, or a file of the user's own rows; embedded streams need none."""
    declaration: Path | None = None
    """Public declaration of own rows; None: the TOML file next to them."""
    public: Path | None = None
    """Public sentences for own rows; None: the file that the declaration names."""
    rows: Literal["subset", "all", "held-out", "valid"] = "subset"
    """Rows of a stream: the reported subset, all, or those held out for tuning. Of own rows: all
    (subset), or those that follow the declaration (valid), the others being left out."""
    scenario: Literal["class", "domain", "task"] | None = None
    """What is known at test time; None: the stream's headline scenario."""
    clients: int | None = Field(None, ge=1)
    """Number of registered clients N; None: the stream's default."""
    alpha: float | None = Field(None, gt=0)
    """Concentration of the Dirichlet partition; None: the stream's default."""
    min_rows: int = Field(2, ge=0)
    """Minimum number of rows of a simulated client, where a stream shares out rows, not people."""
    poisoning: str | None = Field(None, pattern=r"^(oppose|mislead)-(0|0?\.\d+)$")
    """Attack and share of the simulated clients that send contributions of maximum norm:
    ``oppose-0.1`` opposes the honest sum, ``mislead-0.1`` contributes texts of another label."""

    @property
    def hostile(self) -> float:
        """Share of the clients that attack."""
        return float(self.poisoning.partition("-")[2]) if self.poisoning else 0.0

    @property
    def attack(self) -> Literal["oppose", "mislead"]:
        """Their attack."""
        return "mislead" if (self.poisoning or "").startswith("mislead") else "oppose"


class PrivacyConfig(_Section):
    """The privacy target; the noise multiplier is computed from it."""

    epsilon: float = 8.0
    """ε of this run."""
    budget: float | None = None
    """Enforced privacy: ε of all runs on the same data together; None: ``epsilon``."""
    delta: float = 1e-5
    adversary: Literal["public", "roster"] = "roster"
    participation: float = 1.0
    """q: participation rate, the probability that a client participates in a release."""
    cap: int | None = Field(None, ge=1)
    """Maximum number of tasks that a client contributes to; None: all of them."""
    unit: Literal["client", "person"] = "client"
    """Unit of privacy: a client with all its rows, or one person inside it."""
    mode: Literal["simulated", "enforced"] = "simulated"
    federation: Path | None = None
    """Enforced privacy: directory of the ledger that all runs on the same data share. None: next to
    own rows; required for other streams."""
    evaluate: Evaluate | None = None
    """Scores on test rows: exact and only shown, or exact and stored, both not covered by ε;
    private, a noisy count that is charged; or none. None: shown with enforced privacy, stored in
    a simulation."""

    @property
    def evaluation(self) -> Evaluate:
        """``evaluate`` or its default."""
        return self.evaluate or ("shown" if self.mode == "enforced" else "stored")

    @model_serializer(mode="wrap")
    def _plain(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """With the default filled in; left out in simulations that store their scores."""
        plain: dict[str, Any] = {**usual(self), "evaluate": self.evaluation}
        if self.unit == "client":  # so that older configurations keep their digest
            del plain["unit"]
        if self.mode == "simulated" and self.evaluation == "stored":
            del plain["evaluate"]
        return plain

    @field_validator("epsilon", "budget")
    @classmethod
    def _positive(cls, value: float | None) -> float | None:
        if value is not None and (math.isnan(value) or value <= 0):
            raise ValueError(f"must be greater than 0, not {value:g}")
        return value

    @field_validator("delta")
    @classmethod
    def _probability(cls, value: float) -> float:
        if not 0 < value < 1:
            raise ValueError(f"must lie strictly between 0 and 1, not {value:g}")
        return value

    @field_validator("participation")
    @classmethod
    def _rate(cls, value: float) -> float:
        if not 0 < value <= 1:
            raise ValueError(f"the participation rate q must lie in (0, 1], not {value:g}")
        return value


class ReplayConfig(_Section):
    """How a replay is described, matched and estimated. These settings do not change ε."""

    prior: Literal["labels", "none"] = "labels"
    dimension: int | None = Field(None, ge=1)
    """r: number of public directions of a contribution; None: 384, or 128 without a prior."""
    sub_modes: int | None = Field(None, ge=1)
    """J: modes per label, or per task if lists are pooled; None: the method's default."""
    matcher: str | None = None
    """The matcher of candidates, a name in ``MATCHERS``; None: the method's default, signature.
    ``signature-synthetic`` and ``signature-random`` take signatures at draws from the distribution
    of the public sentences, or at random directions, instead of at the sentences."""
    release: Literal["sum", "list", "pooled", "select", "paper"] | None = None
    """What leaves a client; None: the method's default, mostly ``sum``.

    sum     its share of one sum of statistics, jointly clipped, per label
    list    as sum, and before it the client's own noised list
    pooled  as sum, but a list describes all labels of a task together
    select  as sum, but a mode's mean is selected by vote among public candidates
    paper   a noised list per task, then four statistics, each clipped by itself, with whole
            second moments: Algorithm 1 to the letter, with the constants of ``[paper]``
    """
    coordinates: str = Field(
        "projection", pattern=r"^(projection|mapped(-[1-9]\d+)?|relative|raw|dropped)$"
    )
    """Coordinates of clients' texts: the reference encoder's (projection), mapped to them from the
    client's encoder, or similarities to the anchors (relative). Several encoders need one of the
    last two; ``mapped-400`` fits the maps on 400 public sentences instead of on all. raw uses the
    coordinates of any encoder unchanged, to show the effect. After an upgrade earlier releases are
    mapped to the new encoder (projection), dropped, or used unchanged (raw)."""

    @property
    def shared_sentences(self) -> int | None:
        """Number of public sentences that maps between encoders are fitted on; None: all."""
        count = self.coordinates.partition("-")[2]
        return int(count) if count else None

    @property
    def sends_lists(self) -> bool:
        """Whether a noised list leaves each client before its share of the sum."""
        return self.release in ("list", "paper")

    @property
    def pooled(self) -> bool:
        """Whether a list is about all labels of a task, and not about one label."""
        return self.release in ("pooled", "paper")

    @property
    def clipping(self) -> Literal["joint", "separate"]:
        """Whether a client's statistics are clipped jointly, or each by itself."""
        return "separate" if self.release == "paper" else "joint"

    @property
    def second_moments(self) -> Literal["shared", "full"]:
        """How a mode's spread is described: by one number, or by its whole second moments."""
        return "full" if self.release == "paper" else "shared"

    @property
    def aggregate(self) -> Literal["average", "select"]:
        """Whether a mode's mean is averaged, or selected by vote among public candidates."""
        return "select" if self.release == "select" else "average"

    @property
    def matching(self) -> str:
        """The name of the matcher in ``MATCHERS``."""
        name = self.matcher or "signature"
        return "signature" if name in _ANCHORS else name

    @property
    def anchor_kind(self) -> str:
        """The kind of anchors: sentences, synthetic (draws from their distribution) or random."""
        return _ANCHORS.get(self.matcher or "signature", "sentences")

    @property
    def directions(self) -> int:
        """r; fewer without a prior, where the data alone must exceed the noise."""
        return self.dimension or (384 if self.prior == "labels" else 128)


class HeadConfig(_Section):
    """The two-layer head and its training."""

    kind: Literal["released", "federated", "dp-fedavg", "rounds"] | None = None
    """released: trained on the released replay only; federated: by clients on their rows and the
    replay, without noise (end-to-end ε = ∞); dp-fedavg: the same with noise; rounds: a linear head
    by noisy gradient rounds, without a replay. None: the method's default."""
    rounds: int | None = Field(None, ge=1)
    """Rounds of federated training, or gradient rounds, per task; None: the method's default."""
    clip: float | None = Field(None, gt=0)
    """Clipping norm of a unit's update or gradient, if noised; None: the method's default."""


class Config(_Section):
    """A whole run."""

    method: str = "cslr"
    seeds: tuple[int, ...] = (13,)
    encoder: str = "minilm"
    """The reference encoder of label texts, public sentences and, by default, clients."""
    encoders: tuple[str, ...] = ()
    """The encoders of clients, assigned evenly; empty: all clients use the reference. With an
    upgrade: the one encoder before it."""
    upgrade: int = Field(0, ge=0)
    """Number of tasks released before the reference encoder was changed; 0: it was not."""
    yardsticks: bool = True
    stream: StreamConfig = StreamConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    replay: ReplayConfig = ReplayConfig()
    head: HeadConfig = HeadConfig()
    paper: PaperConstants = THE_PAPERS
    """The paper's constants; most are read with ``replay.release = "paper"`` alone."""

    @property
    def client_encoders(self) -> tuple[str, ...]:
        """The encoders of clients where they differ from the reference; none with an upgrade."""
        return () if self.upgrade else self.encoders

    @property
    def encoder_before(self) -> str | None:
        """The reference encoder before the upgrade; None: there was none."""
        return self.encoders[0] if self.upgrade else None

    @property
    def carry(self) -> Literal["mapped", "dropped", "raw"]:
        """What becomes of releases from before an upgrade."""
        kind = self.replay.coordinates
        return "dropped" if kind == "dropped" else "raw" if kind == "raw" else "mapped"

    @property
    def translates(self) -> bool:
        """Whether examples are in coordinates that several encoders have in common."""
        return not self.upgrade and self.replay.coordinates != "projection"

    @model_serializer(mode="wrap")
    def _without_paper(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omits unchanged constants of the paper, so that digests of older versions stay valid."""
        plain: dict[str, Any] = usual(self)
        constants = plain.pop("paper")
        changed = {n: v for n, v in constants.items() if v != getattr(THE_PAPERS, n)}
        return {**plain, "paper": changed} if changed else plain

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError("seeds must be one or more distinct numbers")
        if len(set(self.encoders)) != len(self.encoders):
            raise ValueError("encoders must be distinct")
        if self.upgrade and len(self.encoders) != 1:
            raise ValueError(
                "upgrade: all clients must run one encoder before it and one after it; set "
                "encoders to the one before, and encoder to the one after"
            )
        usual = ("projection", "dropped", "raw") if self.upgrade else ("dropped",)
        if (self.replay.coordinates in usual) != bool(self.upgrade):
            raise ValueError(
                f"replay.coordinates = {self.replay.coordinates!r}: use projection, dropped or raw "
                "with an upgrade, and projection, mapped, relative or raw without one"
            )
        if self.privacy.mode == "enforced":
            if len(self.seeds) > 1:
                raise ValueError(
                    "privacy.mode = 'enforced' allows one seed only, because every seed "
                    "releases the data again"
                )
            if self.privacy.budget is not None and self.privacy.epsilon > self.privacy.budget:
                raise ValueError(
                    f"privacy.epsilon = {self.privacy.epsilon:g} exceeds privacy.budget, the "
                    f"budget of all runs together, which is {self.privacy.budget:g}"
                )
        return self

    def digest(self) -> str:
        """A short name; configurations with the same name give the same results."""
        plain = self.model_dump(mode="json")
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]


def load_config(path: Path | None, overrides: Mapping[str, Any]) -> Config:
    """The file's settings (if any) with ``overrides`` (dotted names) on top."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from None
    return _validated(values, overrides, f"{path}: " if path else "")


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """``config`` with these settings (dotted names) instead of its own, checked again."""
    return _validated(config.model_dump(), settings, "")


def _validated(values: dict[str, Any], overrides: Mapping[str, Any], where: str) -> Config:
    try:
        return Config.model_validate(nested({**dotted(values), **overrides}))
    except ValidationError as error:
        raise ConfigError(where + mistakes(error, Config)) from None
    except ValueError as error:
        raise ConfigError(f"{where}{error}") from None


def mistakes(error: ValidationError, root: type[BaseModel]) -> str:
    """What is wrong in a file that ``root`` describes: settings, reasons, known names."""
    return "; ".join(_mistake(each, root) for each in error.errors())


def _mistake(error: Any, root: type[BaseModel]) -> str:
    """One error as text; entries of a list are counted from one."""
    location: tuple[str | int, ...] = error["loc"]
    name = ".".join(str(part + 1) if isinstance(part, int) else part for part in location)
    if error["type"] != "extra_forbidden":
        what: str = error["msg"].removeprefix("Value error, ")
        return f"{name}: {what}" if name else what
    section = root
    for part in location[:-1]:
        if isinstance(part, str):
            annotation = section.model_fields[part].annotation
            section = (get_args(annotation) or (annotation,))[0]
    names = sorted(section.model_fields)
    close = difflib.get_close_matches(str(location[-1]), names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown setting {name}; {hint}known settings: {', '.join(names)}"
