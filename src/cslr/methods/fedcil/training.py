"""AC-GAN training steps: on a device, in consolidation and on public samples.

The critic learns to separate given rows from generated ones and to predict their labels; the
generator learns to make rows that the critic takes for given rows of their label. Each batch is one
step of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from cslr.methods.fedcil.networks import Networks
from cslr.protocol.head import Family

__all__ = ["Batch", "Steps", "targets_for", "train"]

BETAS: Final = (0.5, 0.99)
WEIGHT_DECAY: Final = 1e-5
STEEPNESS: Final = 5.0
"""Weight of the penalty on the critic's squared gradient at real rows."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The data of b models for one iteration."""

    x: Tensor  # (b, n, r) rows that count as real
    labels: Tensor  # (b, n)
    targets: Tensor  # (b, n, outputs)
    noise: Tensor  # (b, m, k)
    conditions: Tensor  # (b, m) labels to generate rows of
    echoes: Tensor | None = None
    """(b, e, r) rows of the released generator, for the labels of the first e rows."""


@dataclass(frozen=True)
class Steps:
    """Step sizes and loss weights of an iteration."""

    rate: float
    generator_rate: float
    """0: only the critic's classifier is trained."""
    consistency: float
    """Weight of the two loss terms on echoes."""


def train(networks: Networks, batches: Iterable[Batch], family: Family, steps: Steps) -> None:
    """Train all models of the stack in place, a step of critic and generator each batch."""
    critic = _adam(networks.critic, steps.rate)
    generator = _adam(networks.generator, steps.generator_rate)
    for batch in batches:
        if not steps.generator_rate:
            _, logits = networks.judge(batch.x)
            _step(critic, _class_loss(logits, batch.targets, family))
            continue
        fakes = networks.generate(batch.noise, batch.conditions)
        loss = _critic_loss(networks, batch, fakes.detach(), family, steps.consistency)
        _step(critic, loss)
        _step(generator, _generator_loss(networks, batch, fakes, family))


def _adam(layers: Sequence[Tensor], rate: float) -> torch.optim.Optimizer:
    """Fused: one pass over memory instead of ten, which took most of the time of a step."""
    return torch.optim.Adam(
        list(layers), lr=rate, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
    )


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    # Models share no parameters, so the gradient of the sum contains the gradient of each.
    parts = [part for group in optimizer.param_groups for part in group["params"]]
    for part, gradient in zip(parts, torch.autograd.grad(loss.sum(), parts), strict=True):
        part.grad = gradient.contiguous()  # fused Adam reads memory in order
    optimizer.step()


def _critic_loss(
    networks: Networks, batch: Batch, fakes: Tensor, family: Family, consistency: float
) -> Tensor:
    """(b,) the critic's loss of each model."""
    real, logits = networks.judge(batch.x)
    fake, _ = networks.judge(fakes)
    loss = functional.softplus(-real).mean(dim=-1) + functional.softplus(fake).mean(dim=-1)
    loss = loss + _class_loss(logits, batch.targets, family)
    loss = loss + STEEPNESS / 2 * networks.steepness(batch.x).mean(dim=-1)
    if batch.echoes is None or not consistency:
        return loss
    count = batch.echoes.shape[1]
    _, echoed = networks.judge(batch.echoes)
    targets = targets_for(batch.labels[:, :count], echoed, family)
    divergence = _divergence(logits[:, :count], echoed, family)
    return loss + consistency * (divergence + _class_loss(echoed, targets, family))


def _generator_loss(networks: Networks, batch: Batch, fakes: Tensor, family: Family) -> Tensor:
    real, logits = networks.judge(fakes)
    targets = targets_for(batch.conditions, logits, family)
    return functional.softplus(-real).mean(dim=-1) + _class_loss(logits, targets, family)


def targets_for(labels: Tensor, logits: Tensor, family: Family) -> Tensor:
    """(b, n, outputs) the targets of rows generated for ``labels`` (b, n).

    Where a label does not determine the outputs (B- or I- tags), they are the critic's own
    probabilities given the label; the gradient is then that of the label's log probability.
    """
    logits = logits.detach()
    about = torch.from_numpy(family.label_of_output()) == labels[..., None]
    if family.sigmoid:
        return about.to(logits.dtype)
    return torch.softmax(logits.masked_fill(~about, -torch.inf), dim=-1)


def _class_loss(logits: Tensor, targets: Tensor, family: Family) -> Tensor:
    """(b,) cross-entropy, of independent outputs or of a softmax."""
    if family.sigmoid:
        each = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        loss = each.sum(dim=-1)
    else:
        loss = -(targets * torch.log_softmax(logits, dim=-1)).sum(dim=-1)
    return loss.mean(dim=-1)


def _divergence(real: Tensor, echoed: Tensor, family: Family) -> Tensor:
    """(b,) KL divergence between the outputs for real rows and those for echoes."""
    if family.sigmoid:
        real, echoed = (torch.stack([logit, -logit], dim=-1) / 2 for logit in (real, echoed))
    log_p, log_q = torch.log_softmax(real, dim=-1), torch.log_softmax(echoed, dim=-1)
    divergence = log_p.exp() * (log_p - log_q)
    return divergence.flatten(start_dim=2).sum(dim=-1).mean(dim=-1)
