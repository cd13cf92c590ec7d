"""AC-GAN steps: the same on a device, in consolidation and on public samples.

The critic learns to tell given rows from generated ones and what they are; the generator learns to
pass for given rows of its label. One step of each a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from cslr.methods.fedcil.networks import Networks
from cslr.protocol.targets import Family

__all__ = ["Batch", "Steps", "answers_of", "train"]

BETAS: Final = (0.5, 0.99)
WEIGHT_DECAY: Final = 1e-5
STEEPNESS: Final = 5.0
"""Weight of the critic's squared slope at real rows, without which it outruns the generator."""


@dataclass(frozen=True, eq=False)
class Batch:
    """What b models learn from in one iteration."""

    x: Tensor  # (b, n, r) rows that count as real
    labels: Tensor  # (b, n)
    targets: Tensor  # (b, n, outputs)
    noise: Tensor  # (b, m, k)
    conditions: Tensor  # (b, m) what is generated beside them
    echoes: Tensor | None = None
    """(b, e, r) the server's idea of the labels of the first e rows."""


@dataclass(frozen=True)
class Steps:
    """How far one iteration goes."""

    rate: float
    generator_rate: float
    """0: the critic's class path is trained alone."""
    consistency: float
    """Weight of the two terms about echoes."""


def train(networks: Networks, batches: Iterable[Batch], family: Family, steps: Steps) -> None:
    """Train all models of the stack in place, a step of critic and generator each batch."""
    critic = _adam(networks.critic, steps.rate)
    generator = _adam(networks.generator, steps.generator_rate)
    for batch in batches:
        if not steps.generator_rate:
            _, answers = networks.judge(batch.x)
            _step(critic, _class_loss(answers, batch.targets, family))
            continue
        fakes = networks.generate(batch.noise, batch.conditions)
        loss = _critic_loss(networks, batch, fakes.detach(), family, steps.consistency)
        _step(critic, loss)
        _step(generator, _generator_loss(networks, batch, fakes, family))


def _adam(layers: Sequence[Tensor], rate: float) -> torch.optim.Optimizer:
    """Fused: a pass over memory in place of ten, which took most of the time of a step."""
    return torch.optim.Adam(
        list(layers), lr=rate, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
    )


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    # Models share no parameter, so the gradient of the sum is each one's own.
    parts = [part for group in optimizer.param_groups for part in group["params"]]
    for part, gradient in zip(parts, torch.autograd.grad(loss.sum(), parts), strict=True):
        part.grad = gradient.contiguous()  # fused Adam reads memory in order
    optimizer.step()


def _critic_loss(
    networks: Networks, batch: Batch, fakes: Tensor, family: Family, consistency: float
) -> Tensor:
    """(b,) each model's own."""
    real, answers = networks.judge(batch.x)
    fake, _ = networks.judge(fakes)
    loss = functional.softplus(-real).mean(dim=-1) + functional.softplus(fake).mean(dim=-1)
    loss = loss + _class_loss(answers, batch.targets, family)
    loss = loss + STEEPNESS / 2 * networks.steepness(batch.x).mean(dim=-1)
    if batch.echoes is None or not consistency:
        return loss
    count = batch.echoes.shape[1]
    _, echoed = networks.judge(batch.echoes)
    wanted = answers_of(batch.labels[:, :count], echoed, family)
    apart = _divergence(answers[:, :count], echoed, family)
    return loss + consistency * (apart + _class_loss(echoed, wanted, family))


def _generator_loss(networks: Networks, batch: Batch, fakes: Tensor, family: Family) -> Tensor:
    real, answers = networks.judge(fakes)
    wanted = answers_of(batch.conditions, answers, family)
    return functional.softplus(-real).mean(dim=-1) + _class_loss(answers, wanted, family)


def answers_of(labels: Tensor, answers: Tensor, family: Family) -> Tensor:
    """(b, n, outputs) what a critic should say of rows generated for ``labels`` (b, n).

    Where a label does not settle the answer (B- or I-, further intents), what the critic says
    already: the gradient is then that of the label's own probability.
    """
    said = answers.detach()
    about = torch.from_numpy(family.label_of_output()) == labels[..., None]
    if family.sigmoid:
        return about.to(said.dtype)
    return torch.softmax(said.masked_fill(~about, -torch.inf), dim=-1)


def _class_loss(answers: Tensor, targets: Tensor, family: Family) -> Tensor:
    """(b,) cross-entropy, of every output by itself or of all against each other."""
    if family.sigmoid:
        each = functional.binary_cross_entropy_with_logits(answers, targets, reduction="none")
        loss = each.sum(dim=-1)
    else:
        loss = -(targets * torch.log_softmax(answers, dim=-1)).sum(dim=-1)
    return loss.mean(dim=-1)


def _divergence(real: Tensor, echoed: Tensor, family: Family) -> Tensor:
    """(b,) KL of what is said about the server's rows from what is said about real ones."""
    if family.sigmoid:
        real, echoed = (torch.stack([logit, -logit], dim=-1) / 2 for logit in (real, echoed))
    said, again = torch.log_softmax(real, dim=-1), torch.log_softmax(echoed, dim=-1)
    apart = said.exp() * (said - again)
    return apart.flatten(start_dim=2).sum(dim=-1).mean(dim=-1)
