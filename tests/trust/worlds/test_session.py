"""A loop of one's own over a ``Session`` in two worlds: one unit's rows are there, or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import cslr
import cslr.privacy.mechanism as mechanism

D, TASKS, LABELS = 24, 2, 4


@dataclass
class Kept:
    """Where releases are kept."""

    vectors: dict[str, np.ndarray] = field(default_factory=dict)

    def load(self, label):
        return self.vectors.get(label)

    def save(self, label, vector):
        self.vectors[label] = vector


def _unit(z):
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def played(folder: Path, z, labels, units, count, clients_per_person, cap):
    """What follows from releases that carry nothing but their names, and the sums before noise."""
    rng, seeds = np.random.default_rng(2), cslr.Seeds(1)
    corpus = _unit(np.eye(D)[rng.integers(D, size=400)] + 0.15 * rng.normal(size=(400, D)))
    space = cslr.build_space(corpus, "axes", dimension=8, anchors=12, rng=seeds.at("anchors"))
    modes = cslr.declare_modes(space, corpus, np.eye(D)[:LABELS], 1, "labels", seeds.at("modes"))
    agreement = cslr.Agreement(
        space,
        modes,
        cslr.ListLearner(),
        matcher="signature",
        second_moments="shared",
        seed=1,
        clients=count,
        family=cslr.Family("classification", labels=LABELS),
        clients_per_person=clients_per_person,
    )
    agreement = cslr.with_bound(agreement, corpus, labels_per_task=2)
    plan = cslr.calibrate(cslr.Budget(epsilon=4.0), releases=TASKS, cap=cap)
    people = cslr.Population(
        z, labels, labels // 2, units, count, clients_per_unit=clients_per_person
    )
    sums, heads = {}, []

    def published(kept, charge, key, ledger):
        sums[charge.label] = kept.total
        noise = np.random.default_rng(len(sums)).standard_normal(kept.total.shape)
        return kept.grid.decode(np.rint(noise * kept.grid.steps).astype(np.int64))

    federation = cslr.Federation("own loop", plan.budget, "enforced")
    keys = cslr.EphemeralKeys(folder / "keys")
    start = cslr.initial_head(D, LABELS, cslr.HeadSettings(), seeds.at("head"))
    with (
        patch.object(mechanism, "_noised", published),
        cslr.Ledger.at(folder / "ledger.jsonl", federation, keys) as ledger,
    ):
        ledger.fix_plan(plan, agreement.public_facts())
        session = cslr.Session(agreement, plan, ledger, Kept())
        everyone = np.ones(count, dtype=np.bool_)
        for task in range(TASKS):
            cohort = people.cohort(task, everyone, plan.cap, alone=True)
            session.release(task, (2 * task, 2 * task + 1), cohort)
            rehearsal = cslr.Rehearsal(start, cslr.HeadSettings(), 40, 1, seeds.under(task))
            heads.append(
                b"".join(each.tobytes() for each in vars(session.learn(rehearsal)).values())
            )
        spent = ledger.epsilon("end_to_end", "roster")
    return sums, agreement.public_facts(), heads, spent


@pytest.mark.parametrize("cap", [None, 1])
@pytest.mark.parametrize(("several", "gone"), [(1, 3), (2, 3)], ids=["client", "person of two"])
def test_a_unit_moves_sums_by_their_bound_and_nothing_else(tmp_path, several, gone, cap):
    """Units of several clients each are numbered so that unit u is in places several · u + ..."""
    rng = np.random.default_rng(5)
    labels, units = rng.integers(LABELS, size=300), rng.integers(20 * several, size=300)
    z = _unit(np.eye(D)[labels] + 0.15 * rng.normal(size=(300, D)))
    there, ends = units // several != gone, []
    for number, rows in enumerate((np.ones(300, dtype=np.bool_), there, ~there)):
        (tmp_path / str(number)).mkdir()
        world = (z[rows], labels[rows], units[rows], 20 * several, several, cap)
        ends.append(played(tmp_path / str(number), *world))
    (every, *one), (others, *other), (own, *_) = ends
    assert str(one) == str(other)
    moves = [np.linalg.norm(every[task].astype(float) - others[task]) / 2**20 for task in every]
    assert 0 < max(moves) <= 1
    assert sum(np.square(moves)) <= (cap or TASKS)
    for task, total in every.items():
        assert np.array_equal(total - others[task], own[task]), "nobody else's answer moved"
