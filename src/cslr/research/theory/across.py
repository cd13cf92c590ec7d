"""NON-PRIVATE. Candidates of one encoder named by prototypes of another, without any map.

A signature says how likely the same public sentences are to a candidate, so it means the same
whatever space the candidate was learnt in. What it is worth is measured against the true modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.errors import ConfigError
from cslr.numerics.assignment import nearest
from cslr.numerics.gaussian import Gaussians
from cslr.numerics.mixture import Mixture
from cslr.protocol.public_space import PublicSpace
from cslr.protocol.step1_list import ListLearner, learn_lists, shares_of, steadied
from cslr.protocol.step2_sign import contrasts
from cslr.protocol.step3_match import check_matcher, match
from cslr.seeding import Seeds

__all__ = ["Side", "alignment_across", "match_across", "prototypes_of"]


@dataclass(frozen=True, eq=False)
class Side:
    """What the clients of one encoder hold. Private."""

    space: PublicSpace
    z: FloatArray  # (n, d)
    kinds: IntArray  # (n,) the true mode of each, from 0 on
    clients: IntArray  # (n,)


def match_across(
    lists: Mixture,
    own: PublicSpace,
    prototypes: Gaussians,
    theirs: PublicSpace,
    matcher: str = "signature",
    rngs: Sequence[np.random.Generator] = (),
) -> IntArray:
    """Ids (b, L) of candidates (b, L, r) of one space among prototypes (J, r') of another.

    Both spaces must have the same public sentences as anchors. Only signatures need nothing else:
    the other matchers compare coordinates, which mean nothing across encoders. Where dimensions
    differ they are refused; where these happen to be equal nobody can tell, and they guess.
    """
    check_matcher(matcher)
    if len(own.anchors) != len(theirs.anchors):
        raise ValueError(
            f"theirs has {len(theirs.anchors)} anchors, own {len(own.anchors)}: they must be the "
            "same sentences"
        )
    if matcher == "signature":
        seen = contrasts(lists.gaussians, _background(own), own.anchors)
        known = contrasts(prototypes, _background(theirs), theirs.anchors)
        return nearest(np.square(known).sum(axis=-1) - 2.0 * seen @ known.T)
    if own.dimension != theirs.dimension and matcher != "random":
        raise ConfigError(
            f"matcher {matcher!r} compares coordinates, and {own.encoder} has {own.dimension} of "
            f"them, {theirs.encoder} {theirs.dimension}: there is no distance between the two. "
            "Match by signature, or bring both into common coordinates first "
            "(--set replay.coordinates=mapped or relative)"
        )
    return match(lists, prototypes, theirs.anchors, matcher, rngs)


def prototypes_of(side: Side, pseudo: float = ListLearner().pseudo_count) -> Gaussians:
    """(K, r) the mean and the steadied variances of each true mode."""
    x, spread = side.space.into(side.z), side.space.spread
    parts = [x[side.kinds == kind] for kind in range(int(side.kinds.max()) + 1)]
    share = np.array([len(part) / (len(part) + pseudo) for part in parts])[:, None]
    variances = np.stack([part.var(axis=0) for part in parts])
    means = np.stack([part.mean(axis=0) for part in parts])
    return Gaussians(means, share * variances + (1 - share) * spread)


def alignment_across(
    own: Side, theirs: Side, learner: ListLearner, matcher: str, seeds: Seeds
) -> float:
    """Share of the clients' examples whose candidate gets the id of its true mode.

    Clients of ``own`` make a list each; prototypes are those of ``theirs``. A candidate's true mode
    is that of most of its examples.
    """
    prototypes, spread, x = prototypes_of(theirs), own.space.spread, own.space.into(own.z)
    right, total = 0.0, 0.0
    for client in np.unique(own.clients).tolist():
        mine = own.clients == client
        rows, kinds = x[mine][None], own.kinds[mine]
        every, rngs = np.ones((1, len(kinds)), dtype=np.bool_), [seeds.at("across", client)]
        lists = learn_lists(rows, every, spread, learner, rngs)
        steady = steadied(lists, np.array([len(kinds)]), spread, learner.pseudo_count)
        seen = Mixture(lists.weights, steady)
        ids = match_across(seen, own.space, prototypes, theirs.space, matcher, rngs)[0]
        shares = shares_of(lists, rows, every)[0]  # (n, L)
        mass = shares.T @ np.eye(len(prototypes.mean))[kinds]  # (L, K)
        right += float(mass.sum(axis=1)[mass.argmax(axis=1) == ids].sum())
        total += float(mass.sum())
    return right / total


def _background(space: PublicSpace) -> Gaussians:
    """(1, r) how public sentences lie as a whole."""
    return Gaussians(np.zeros((1, space.dimension)), space.spread[None])
