"""Generator and critic of one AC-GAN, for a stack of clients at once.

    generator   [noise; label] -> h -> h -> r, LeakyReLU, then scaled to the length of an embedding
    critic      r -> h' -> real or fake, and the outputs of the task head, with ReLU like any head

A model is one flat vector, the generator's parameters first. A client's update is the difference of
two such vectors, clipped and noised as a whole. Operations are batched over the first axis; none of
them mixes two entries of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cslr.arrays import FloatArray

__all__ = ["SLOPE", "Networks", "Shapes"]

SLOPE: Final = 0.2
"""Slope of LeakyReLU below zero."""
_GENERATOR: Final = 6  # weights and biases of three layers


@dataclass(frozen=True)
class Shapes:
    """The widths of both networks; public."""

    labels: int  # c, what the generator is conditioned on
    coordinates: int  # r
    outputs: int
    radius: float
    """Length of generated rows."""
    noise: int
    generator_hidden: int
    critic_hidden: int

    @property
    def tensors(self) -> list[tuple[int, int]]:
        """Weights (in, out) and biases (1, out) of every layer, in the order of a model."""
        generator = (
            self.noise + self.labels,
            self.generator_hidden,
            self.generator_hidden,
            self.coordinates,
        )
        critic = (self.coordinates, self.critic_hidden, 1 + self.outputs)
        layers = [*pairwise(generator), *pairwise(critic)]
        return [shape for into, out in layers for shape in ((into, out), (1, out))]

    @property
    def size(self) -> int:
        """D: the number of parameters of a model."""
        return sum(into * out for into, out in self.tensors)

    def initial(self, rng: np.random.Generator) -> FloatArray:
        """(D,) normal weights of variance 2/fan-in, which pass the noise on, and zero biases."""
        parts = []
        for into, out in self.tensors[::2]:
            parts.append(rng.standard_normal(into * out) * np.sqrt(2.0 / into))
            parts.append(np.zeros(out))
        parts[-2] *= 0.0  # the critic's outputs start at zero
        return np.concatenate(parts).astype(np.float32)

    def split(self, model: FloatArray) -> list[FloatArray]:
        """The layers of a model (D,)."""
        ends = np.cumsum([into * out for into, out in self.tensors])
        parts = np.split(model, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.tensors, strict=True)]


@dataclass(frozen=True, eq=False)
class Networks:
    """A stack of b models."""

    shapes: Shapes
    layers: Sequence[Tensor]  # (b, in, out) and (b, 1, out)

    @classmethod
    def copies(cls, shapes: Shapes, model: FloatArray, count: int) -> Networks:
        """A stack of ``count`` trainable copies of a model."""
        layers = [
            torch.from_numpy(np.repeat(part[None], count, axis=0).astype(np.float32))
            for part in shapes.split(model)
        ]
        return cls(shapes, [layer.requires_grad_() for layer in layers])

    @property
    def generator(self) -> Sequence[Tensor]:
        """The generator's layers."""
        return self.layers[:_GENERATOR]

    @property
    def critic(self) -> Sequence[Tensor]:
        """The critic's layers."""
        return self.layers[_GENERATOR:]

    def models(self) -> FloatArray:
        """(b, D) the models as flat vectors."""
        flat = [layer.detach().flatten(start_dim=1).numpy() for layer in self.layers]
        return np.concatenate(flat, axis=1)

    def generate(self, noise: Tensor, labels: Tensor) -> Tensor:
        """(b, n, r) from noise (b, n, k) and labels (b, n)."""
        condition = functional.one_hot(labels, self.shapes.labels).to(noise.dtype)
        hidden = torch.cat([noise, condition], dim=-1)
        w1, b1, w2, b2, w3, b3 = self.generator
        hidden = functional.leaky_relu(torch.baddbmm(b1, hidden, w1), SLOPE)
        hidden = functional.leaky_relu(torch.baddbmm(b2, hidden, w2), SLOPE)
        x = torch.baddbmm(b3, hidden, w3)
        return functional.normalize(x, dim=-1) * self.shapes.radius

    def judge(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits that each x (b, n, r) is real, (b, n), and of its outputs, (b, n, outputs)."""
        w1, b1, w2, b2 = self.critic
        hidden = torch.relu(torch.baddbmm(b1, x, w1))
        judged = torch.baddbmm(b2, hidden, w2)
        return judged[..., 0], judged[..., 1:]

    def steepness(self, x: Tensor) -> Tensor:
        """(b, n) squared norm of the gradient of the real-or-fake logit at x (b, n, r)."""
        w1, b1, w2, _ = self.critic
        hidden = torch.baddbmm(b1, x, w1)
        slopes = (hidden.detach() > 0).to(x.dtype) * w2[:, None, :, 0]
        return torch.bmm(slopes, w1.transpose(1, 2)).square().sum(dim=-1)
