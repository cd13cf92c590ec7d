"""What a run is made of. What changes ε stands in ``[privacy]`` and nowhere else.

A configuration is a TOML file, flags over it, defaults under it; an unknown key is an error that
names the known ones.
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
from cslr.former_settings import without_removed
from cslr.paper_constants import THE_PAPERS, PaperConstants

__all__ = [
    "Config",
    "Evaluate",
    "HeadConfig",
    "PrivacyConfig",
    "ReplayConfig",
    "StreamConfig",
    "load_config",
    "mistakes",
    "with_settings",
]


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
    """Which tasks arrive, and who holds them. All of it is public."""

    name: str = "clinic"
    data: Path | None = None
    """Directory of the data sets, or a file of one's own rows; embedded streams need none."""
    declaration: Path | None = None
    """What may be known about one's own rows; None: the TOML beside them."""
    public: Path | None = None
    """Public sentences to go with one's own rows; None: those the declaration names."""
    skip_bad_rows: bool = False
    """Whether rows of one's own that are not as declared are left out, and not an error."""
    rows: Literal["subset", "all", "held-out"] = "subset"
    scenario: Literal["class", "domain", "task"] | None = None
    """What is known at test time; None: the stream's headline scenario."""
    clients: int | None = Field(None, ge=1)
    """Registered clients N; None: the stream's own number."""
    alpha: float | None = Field(None, gt=0)
    """Concentration of the Dirichlet partition; None: the stream's own."""
    min_rows: int = Field(2, ge=0)
    """Fewest rows a simulated client may hold."""
    hostile: float = Field(0.0, ge=0, lt=1)
    """Share of the simulated clients that do harm with contributions as long as is allowed."""
    attack: Literal["oppose", "mislead"] = "oppose"
    """What they do: point against the honest sum, or answer with texts of another label."""


class PrivacyConfig(_Section):
    """The privacy target. There is no noise multiplier here: it is computed."""

    epsilon: float = 8.0
    """What this run may cost a client."""
    budget: float | None = None
    """What all runs on the same data may cost together, where privacy is enforced; None: ε."""
    delta: float = 1e-5
    adversary: Literal["public", "roster"] = "roster"
    participation: float = 1.0
    """q: participation rate, the probability that a client participates in a release."""
    cap: int | None = Field(None, ge=1)
    """The most tasks a client contributes to; None: all of them."""
    unit: Literal["client", "person"] = "client"
    """Whose whole contribution ε hides: a client with all its rows, or one person inside it."""
    mode: Literal["simulated", "enforced"] = "simulated"
    federation: Path | None = None
    """Directory of the ledger that all runs on the same data share, where privacy is enforced;
    None: beside one's own rows. Other streams have no place of their own."""
    evaluate: Evaluate | None = None
    """What becomes of figures on test rows: exact ones, only shown or also stored, which no ε
    covers; a noised count that is paid for; or none at all. None: shown where privacy is enforced,
    stored in a simulation."""

    @property
    def evaluation(self) -> Evaluate:
        """``evaluate``, or what it is by default."""
        return self.evaluate or ("shown" if self.mode == "enforced" else "stored")

    @model_serializer(mode="wrap")
    def _plain(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """With the rule that holds; a simulation that stores its figures says nothing of it."""
        plain: dict[str, Any] = {**usual(self), "evaluate": self.evaluation}
        if self.unit == "client":  # so that older configurations keep their names
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
    """How a replay is described, matched and estimated. None of it changes ε."""

    prior: Literal["labels", "none"] = "labels"
    dimension: int | None = Field(None, ge=1)
    """r: public directions a contribution is described in; None: 384, or 128 without a prior."""
    anchors: int = Field(100, ge=2)
    """m: public sentences at which signatures are taken."""
    sub_modes: int | None = Field(None, ge=1)
    """J: modes per label, or per task where lists are pooled; None: the method's own choice."""
    list_size: int | None = Field(None, ge=1)
    """L: candidates per client and label; None: the method's own choice, 1 if J = 1, else 2J."""
    matcher: str | None = None
    """How candidates are named, by a name of ``MATCHERS``; None: the method's own, by signature.
    ``signature-synthetic`` and ``signature-random`` take signatures at draws from the distribution
    of the public sentences, or at random directions, instead of at the sentences."""
    release: Literal["sum", "list", "pooled", "select", "paper"] | None = None
    """What leaves a client; None: the method's own choice, mostly ``sum``.

    sum     its share of one sum of statistics, jointly clipped, per label
    list    before that, its noised list
    pooled  as sum, but a list describes all labels of a task together
    select  as sum, but a mode's mean is selected by vote among public candidates
    paper   a noised list per task, then four statistics, each clipped by itself, with whole
            second moments: Algorithm 1 to the letter, with the constants of ``[paper]``
    """
    coordinates: Literal["projection", "mapped", "relative", "raw"] = "projection"
    """What clients describe their texts in: the reference encoder's own coordinates, a map of
    theirs to it, or similarities to the anchors. With several encoders one of the last two; raw, to
    show what that does, takes any encoder's numbers for the reference's."""
    shared_sentences: int | None = Field(None, ge=20)
    """Public sentences that maps between encoders are fitted on; None: all of them."""

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
        """One clip for everything a client says, or one for each statistic."""
        return "separate" if self.release == "paper" else "joint"

    @property
    def second_moments(self) -> Literal["shared", "full"]:
        """What is said about a mode's spread: one number, or its whole second moments."""
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
        """What anchors are: sentences, synthetic (draws from their distribution) or random."""
        return _ANCHORS.get(self.matcher or "signature", "sentences")

    @property
    def directions(self) -> int:
        """r. Without a prior the data alone must outweigh the noise of every direction."""
        return self.dimension or (384 if self.prior == "labels" else 128)


class HeadConfig(_Section):
    """The two-layer head, what it is trained on and how long."""

    kind: Literal["released", "federated", "dp-fedavg", "rounds"] | None = None
    """Trained on the released replay alone; by clients on their data and the replay, without noise
    (end-to-end ε = ∞) or with it; or a linear one by noisy gradient rounds, without any replay.
    None: the method's own choice."""
    samples: int = Field(500, ge=1)
    """n_r: replay samples of each label in a pass."""
    rounds: int | None = Field(None, ge=1)
    """Rounds of federated training, or of gradients, in a task; None: the method's own choice."""
    replay_weight: float = Field(1.0, ge=0)
    """λ: how much the replay counts beside a client's own rows."""
    replay_loss: Literal["targets", "distillation", "contrastive"] = "distillation"
    """What a federated head is held to on the replay: its targets, the answers of the head before
    the task, or embeddings of one mode alike and of others apart."""
    clip: float | None = Field(None, gt=0)
    """Norm of a unit's update or gradient of a head, where it is noised; None: the method's own."""


class UpgradeConfig(_Section):
    """Another encoder from some task on: what was released before is carried over, or not."""

    encoder: str | None = None
    """The reference encoder of the tasks before; None: there is no upgrade."""
    after: int = Field(0, ge=0)
    """How many tasks were released under it."""
    carry: Literal["mapped", "dropped", "raw"] = "mapped"
    """Earlier releases are taken along by a public map; left behind; or, to show what that does,
    read as if the new encoder had made them."""


class Config(_Section):
    """A whole run."""

    method: str = "cslr"
    seeds: tuple[int, ...] = (13,)
    encoder: str = "minilm"
    """The reference encoder, of label texts, public sentences and, unless told else, clients."""
    encoders: tuple[str, ...] = ()
    """The encoders that clients run, dealt out evenly; none: all of them run the reference."""
    yardsticks: bool = True
    stream: StreamConfig = StreamConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    replay: ReplayConfig = ReplayConfig()
    head: HeadConfig = HeadConfig()
    upgrade: UpgradeConfig = UpgradeConfig()
    paper: PaperConstants = THE_PAPERS
    """The paper's constants; ``replay.release = "paper"`` alone reads them."""

    @model_serializer(mode="wrap")
    def _without_paper(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """With those constants of the paper that were changed: other names stay what they were."""
        plain: dict[str, Any] = usual(self)
        constants = plain.pop("paper")
        changed = {n: v for n, v in constants.items() if v != getattr(THE_PAPERS, n)}
        return {**plain, "paper": changed} if changed else plain

    @model_validator(mode="before")
    @classmethod
    def _without_removed(cls, values: Any) -> Any:
        return without_removed(values) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError("seeds must be one or more distinct numbers")
        if len(set(self.encoders)) != len(self.encoders):
            raise ValueError("encoders must be distinct")
        if (self.upgrade.encoder is None) != (self.upgrade.after == 0):
            raise ValueError(
                "upgrade.encoder (the encoder before the upgrade) and upgrade.after (the number "
                "of tasks before it) must be set together"
            )
        if self.upgrade.encoder and (self.encoders or self.replay.coordinates != "projection"):
            raise ValueError(
                "upgrade: all clients must run one encoder before it and one after it; "
                "remove encoders and replay.coordinates"
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
        """A name for this configuration; two runs with the same name compute the same thing."""
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
    for name, value in overrides.items():
        *sections, key = name.split(".")
        target = values
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise ConfigError(f"{section} must be a table, [{section}]")
        target[key] = value
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(where + mistakes(error, Config)) from None


def mistakes(error: ValidationError, root: type[BaseModel]) -> str:
    """What is wrong in a file that ``root`` describes: settings, reasons, known names."""
    return "; ".join(_mistake(each, root) for each in error.errors())


def _mistake(error: Any, root: type[BaseModel]) -> str:
    """The entries of a list are counted from one."""
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
    known = sorted(section.model_fields)
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown setting {name}; {hint}known settings: {', '.join(known)}"
