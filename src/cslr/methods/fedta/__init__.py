"""FedTA†: personal models with tail anchors; a non-private reference.

H. Yu, X. Yang, L. Zhang, H. Gu, T. Li, L. Fan, Q. Yang (2024), "Handling Spatial-Temporal Data
Heterogeneity for Federated Continual Learning via Tail Anchor", arXiv:2412.18355; written from a
description of the method, without its code.

A client has a key and an anchor for every class, and a head for every task; they never leave it.
The key nearest to an embedding z picks the anchor, and the head reads h = [z; anchor]. Classes are
drawn to global prototypes, which the server picks among the clients' class means and freezes.

Departures from the original:

* Sentence (or word) embeddings of a frozen encoder take the place of a vision transformer: their
  100 leading public directions, as in FedCIL here, scaled to the length of anchors.
* Input enhancement is a residual adapter of width 32, not prompts. It is fused on the server by
  fitting one adapter to the clients' on public anchors, starting at their average.
* A slot is a class *of a task*: streams whose tasks share their labels have slots of their own for
  each task, and while a task is learnt only its own slots can be picked.
* Nobody says which task a text is of. A task's head is weighed by the cosine of its nearest key,
  over the τ of InfoNCE.
* "All others", to which a prototype should be unlike, are those of other classes; "near the end"
  is before the last round.
* A softmax over one class decides nothing, so the head of a task with one class is left out.
* Intents are answered by sigmoids, and the class of a text is its main label; for tagging an
  example is a word, its class O or a type, and its outputs are tags.
* The schedule is for two cores: three rounds of ten epochs, batches of 32, and epochs of at most
  256 examples a client (words, in tagging), drawn anew for each. Keys learn at 0.1 and not at
  1e-3: so few steps would leave them where they were drawn. Published are 30 epochs of all rows,
  batches of 16 and 1e-3 for all.

Everybody who holds rows of a task takes part in each of its rounds. The server sees adapters and
class means as they are: there is no privacy, ε = ∞, and the ledger is told so.
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
    """All clients carried from task to task; torch begins with the first stage that is called."""
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
