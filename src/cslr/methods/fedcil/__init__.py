"""FedCIL + DP: an AC-GAN over embeddings whose updates are clipped and noised together.

Reference: Qi, Zhao and Li, "Better generative replay for continual federated learning", ICLR 2023.

A generator makes rows of a label. A critic predicts whether a row is real and which label it has;
its classifier is the task head. Clients train both on their own rows and on rows of earlier tasks
that the released generators make; the server averages the updates and consolidates the head.

Departures from the original:

* Rows are the leading 100 public coordinates of frozen embeddings, not images. With a label prior
  generator and head start from label texts and public sentences, as every method here does.
* The published code multiplies its consistency terms by zero; here their weight is a setting of
  the recipe, 1 by default.
* Under a secure sum the server cannot sample single clients' generators: it consolidates from the
  released generator and from those of earlier tasks, which is post-processing.
* The critic's gradient at real rows is penalised, or it would become too strong for the generator.
* A layer whose noisy update is not longer than its expected noise is not changed.
* Few rounds per task, since some 10⁵ parameters make the noise heavy: 5 of 50 iterations (short),
  10 of 400 (published).

Privacy: end to end. Generator and critic are one vector, clipped once.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from cslr.arrays import FloatArray
from cslr.config import Config
from cslr.methods.fedcil.schedules import recipe_of
from cslr.methods.method import Fitted, MethodContext, Stages, fitted_by
from cslr.privacy.plan import Schedule

if TYPE_CHECKING:
    from cslr.methods.fedcil.rounds import PublicSide

__all__ = ["schedule", "stages"]


def stages(context: MethodContext) -> Stages:
    """One pair of networks carried from task to task; torch is loaded when a stage is called."""
    recipe = recipe_of(context.head)
    public = {"encoder": context.encoder, "clients": context.clients.count}
    context.ledger.fix_plan(context.plan, {"method": "fedcil", "recipe": asdict(recipe), **public})

    @cache
    def federation() -> PublicSide:
        from cslr.methods.fedcil.rounds import PublicSide

        return PublicSide.of(context, recipe)

    @cache
    def models(tasks: int) -> tuple[FloatArray, ...]:
        if tasks == 0:
            return (federation().start(),)
        before = models(tasks - 1)
        return (*before, federation().after_task(tasks - 1, before))

    def after(tasks: int) -> Fitted:
        every = np.full(context.labels, context.replay.prior == "labels")
        head = federation().head(models(tasks)[-1])
        return fitted_by(head, context.seen(tasks) | every, context.family)

    for tasks in range(len(context.tasks) + 1):
        yield partial(after, tasks)


def schedule(config: Config) -> Schedule:
    """Updates of both networks and nothing else."""
    return Schedule(replay=0, head=recipe_of(config.head).rounds)
