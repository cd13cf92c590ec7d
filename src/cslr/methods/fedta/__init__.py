"""FedTA†: personal models with tail anchors; a non-private reference.

H. Yu, X. Yang, L. Zhang, H. Gu, T. Li, L. Fan, Q. Yang (2024), "Handling Spatial-Temporal Data
Heterogeneity for Federated Continual Learning via Tail Anchor", arXiv:2412.18355; written from a
description of the method, without its code.

A client has a key and an anchor for every class, and a head for every task; they never leave it.
The key nearest to an embedding z selects the anchor, and the head reads h = [z; anchor]. Classes
are pulled towards global prototypes, which the server chooses among the clients' class means and
freezes.

Departures from the original:

* Sentence (or word) embeddings of a frozen encoder take the place of a vision transformer: their
  100 leading public directions, as in FedCIL here, scaled to the length of anchors.
* Input enhancement is a residual adapter of width 32, not prompts. It is fused on the server by
  fitting one adapter to the clients' on public anchors, starting at their average.
* A slot is a class *of a task*: streams whose tasks share their labels have separate slots for
  each task, and while a task is learnt only its own slots can be selected.
* The task of a text is not given at inference. A task's head is weighted by the cosine of its
  nearest key, divided by the τ of InfoNCE.
* "All others", which a prototype should differ from, are those of other classes; "near the end"
  is before the last round.
* A softmax over one class is constant, so the head of a task with one class is left out.
* Intents use sigmoids, and the class of a text is its main label. In tagging an example is a word,
  its class O or a type, and its outputs are tags.
* The schedule is for two cores: three rounds of ten epochs, batches of 32, and epochs of at most
  256 examples per client (words, in tagging), drawn anew for each. Keys have learning rate 0.1
  instead of 1e-3, at which so few steps would hardly move them. Published are 30 epochs of all
  rows, batches of 16 and 1e-3 for all.

Every client with rows of a task takes part in each of its rounds. The server sees adapters and
class means without noise: there is no privacy, and the ledger records ε = ∞.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from cslr.methods.method import Fitted, MethodContext, Stages
from cslr.privacy.accounting import Charge

if TYPE_CHECKING:
    from cslr.methods.fedta.inference import PersonalModels
    from cslr.methods.fedta.learning import Learner

__all__ = ["stages"]


def stages(context: MethodContext) -> Stages:
    """All clients carried from task to task; torch is loaded when a stage is called."""
    context.ledger.charge(Charge("local training", 0, "head", None), lambda key: "")

    @cache
    def learner_after(tasks: int) -> Learner:
        from cslr.methods.fedta.learning import RECIPE, begin, learn_task

        if tasks == 0:
            return begin(context)
        return learn_task(context, RECIPE, learner_after(tasks - 1))

    @cache
    def models() -> PersonalModels:
        from cslr.methods.fedta.inference import PersonalModels

        return PersonalModels(context.family, context.tasks, learner_after(0).directions)

    def after(tasks: int) -> Fitted:
        return models().learnt(learner_after(tasks).people)

    for tasks in range(len(context.tasks) + 1):
        yield partial(after, tasks)
