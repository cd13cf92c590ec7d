"""The constants of the paper's own protocol, by the paper's letters: the section ``[paper]``.

The method ``cslr-paper`` reads all of them, other methods the first five alone. Defaults are the
paper's values; where it names a constant and gives no value, the docstring says so. docs/paper.md
has a row for each of them.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["NOISE_TABLE", "SHARED_CONSTANTS", "THE_PAPERS", "PaperConstants"]

NOISE_TABLE: Final[dict[float, float]] = {1.0: 3.20, 4.0: 1.45, 8.0: 0.95}
"""The paper's table of accounting settings: target ε -> noise multiplier σ of each statistic."""


class PaperConstants(BaseModel):
    """What Algorithm 1, Section 4 and the appendices fix, and how open points are read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    m: int = Field(100, ge=2)
    """Number of anchors: public sentences at which signatures are computed."""
    list_size: int | None = Field(None, ge=1)
    """L: candidates per client and label. None: 4 in ``cslr-paper``, otherwise 1 if J = 1, else
    2J."""
    n_r: int = Field(500, ge=1)
    """Replay samples per label in a pass."""
    replay_weight: float = Field(1.0, ge=0)
    """λ: weight of the replay loss of a federated head. No value in the paper."""
    replay_loss: Literal["targets", "distillation", "contrastive"] = "distillation"
    """Loss of a federated head on the replay: its targets, the outputs of the head before the task
    (distillation), or a contrastive loss between modes."""
    calibration: Literal["epsilon", "sigma"] = "epsilon"
    """Noise from ``privacy.epsilon`` by the ledger's accounting; or the paper's σ for that ε, and
    the ledger says what it costs. The only place where a noise multiplier is chosen and not
    computed: in a simulation alone."""
    q: float = Field(0.30, gt=0, le=1)
    """Participation rate of clients, in replay releases and in rounds of the head."""
    b_z: float = Field(1.0, gt=0)
    """Norm that embeddings are clipped to. No value in the paper; embeddings here have norm 1."""
    b_mu: float = Field(1.0, gt=0)
    b_m: float = Field(1.0, gt=0)
    b_pi: float = Field(1.0, gt=0)
    b_y: float = Field(1.0, gt=0)
    b_g: float = Field(1.0, gt=0)
    """Norm that the mean logits of a list entry are clipped to. No value in the paper."""
    pi_min: float = Field(0.05, ge=0, le=1)
    """Mixture weight below which a list entry counts half. No value in the paper."""
    lambda_min: float = Field(1e-4, gt=0)
    """Eigenvalue floor of covariances. No value in the paper."""
    tau: float = Field(1.0, ge=0)
    """Weight of covariances in the transport cost. No value in the paper."""
    lambda_ot: float = Field(0.05, gt=0)
    """Entropic regularisation of transport, on the cost as it is. No value in the paper."""
    canonicalise: Literal["cluster", "assign"] = "cluster"
    """Signatures are clustered, or matched to running prototypes at least cost."""
    aggregate: Literal["average", "select"] = "average"
    """A mode's mean is averaged, or selected by vote among the means of all released lists."""
    standardise: bool = False
    """Whether signatures are standardised over the anchors."""
    division: Literal["cohort", "weights"] = "cohort"
    """Sums are divided by the expected cohort, as the paper's formula has it, a client without a
    mode adding zeros; or statistics are weighted by π and divided by the released Σπ."""
    logit_scale: float = Field(1.0, gt=0)
    """What released logits are multiplied by before the softmax."""
    start: Literal["random", "labels"] = "random"
    """The head at first: random, or the one that label texts give."""
    unit_length: bool = False
    """Whether replay samples are brought to norm ``b_z``, which embeddings of texts have."""


SHARED_CONSTANTS: Final = {"m", "list_size", "n_r", "replay_weight", "replay_loss"}
"""Those that methods other than ``cslr-paper`` read, too."""
THE_PAPERS: Final = PaperConstants()
"""Every constant at the paper's value."""
