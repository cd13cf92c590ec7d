"""The server side of FedCIL's rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cslr.arrays import FloatArray
from cslr.methods.cslr import agree, prior_head
from cslr.methods.fedcil.devices import NetworkTraining, Sent
from cslr.methods.fedcil.networks import Shapes
from cslr.methods.fedcil.pools import Pool, Snapshot, echoes, generated, imitate, learn, normal
from cslr.methods.fedcil.public_start import Coordinates, prior_rows
from cslr.methods.fedcil.schedules import TrainingSchedule
from cslr.methods.fedcil.training import Steps
from cslr.methods.method import MethodContext
from cslr.protocol.head import Head
from cslr.protocol.updates import UpdateId, release_update, update_ask
from cslr.seeding import Seeds

__all__ = ["PublicSide"]


@dataclass(frozen=True, eq=False)
class PublicSide:
    """The server's side of a run: everything except the clients' rows."""

    context: MethodContext
    recipe: TrainingSchedule
    coordinates: Coordinates
    prior: Pool | None
    shapes: Shapes

    @classmethod
    def of(cls, context: MethodContext, recipe: TrainingSchedule) -> PublicSide:
        """Coordinates, prior and shapes of both networks, from public data alone."""
        space = agree(context).space
        coordinates = Coordinates.of(space, recipe.coordinates)
        public = coordinates.into(context.public)
        shapes = Shapes(
            context.labels,
            public.shape[1],
            context.family.outputs,
            float(np.sqrt(np.mean(np.sum(np.square(public), axis=1)))),
            recipe.noise,
            recipe.generator_hidden,
            context.head_settings.hidden,
        )
        prior = prior_rows(context, space, coordinates, recipe.prior_rows)
        return cls(context, recipe, coordinates, prior, shapes)

    def start(self) -> FloatArray:
        """(D,) the model before any task: fitted to the label prior, if there is one."""
        context, recipe = self.context, self.recipe
        model = self.shapes.initial(context.seeds.at("initial gan"))
        if self.prior is None:
            return model
        rng = context.seeds.at("imitation")
        model = imitate(model, self.prior, recipe.imitation, 256, self.shapes, 1e-3, rng)
        critic = self.coordinates.critic(prior_head(context))
        return np.concatenate([model[: -len(critic)], critic]).astype(np.float32)

    def head(self, model: FloatArray) -> Head:
        """The critic's classifier as a head."""
        return self.coordinates.head(model, self.shapes)

    def after_task(self, task: int, snapshots: tuple[FloatArray, ...]) -> FloatArray:
        """The model after the rounds of a task; snapshots: the models of all earlier stages."""
        model, seeds = snapshots[-1], self.context.seeds.under("fedcil", task)
        teachers = self._teachers(task, snapshots)
        replay = None
        if teachers:
            replay = self._generated(teachers, self.recipe.pool, seeds.at("replay"))
        for number in range(self.recipe.rounds):
            model = self._round(task, number, model, teachers, replay, seeds.under(number))
        return model

    def _teachers(self, task: int, snapshots: tuple[FloatArray, ...]) -> list[Snapshot]:
        """Released models of earlier tasks, each for its own labels, and the prior for others."""
        context = self.context
        labels_of = [np.array(labels) for labels in context.tasks]
        teachers = [Snapshot(snapshots[t + 1], labels_of[t]) for t in range(task)]
        unseen = np.flatnonzero(~context.seen(task + 1))
        if self.prior is not None and len(unseen):
            teachers.append(Snapshot(snapshots[0], unseen))
        return teachers

    def _round(
        self,
        task: int,
        number: int,
        model: FloatArray,
        teachers: list[Snapshot],
        replay: Pool | None,
        seeds: Seeds,
    ) -> FloatArray:
        context, recipe = self.context, self.recipe
        plan, ledger, keep = context.plan, context.ledger, context.keep
        update = UpdateId(task, number, context.clients.count)
        mean = release_update(
            update_ask(update, self._training(number, model, replay, seeds), recipe.norm),
            update,
            lambda: context.cohort(task, number),
            plan,
            ledger,
            keep,
        )
        model = (model + self._trusted(mean, update)).astype(np.float32)
        taught = [*teachers, Snapshot(model, np.array(context.tasks[task]))]
        pool = self._generated(taught, 4 * recipe.pool, seeds.at("teachers"))
        steps = Steps(recipe.server_rate, 0.0, 0.0)
        rng = seeds.at("consolidation")
        shapes, family = self.shapes, context.family
        return learn(model, pool, recipe.consolidation, 128, shapes, family, steps, rng=rng)

    def _training(
        self, number: int, model: FloatArray, replay: Pool | None, seeds: Seeds
    ) -> NetworkTraining:
        """The request for a round."""
        recipe, shapes, family = self.recipe, self.shapes, self.context.family
        echoed = None
        if number and recipe.consistency:
            echoed = echoes(model, recipe.pool // 4, shapes, family, seeds.at("echoes"))
        noise = normal(seeds.at("noise"), recipe.pool, shapes.noise)
        return NetworkTraining(
            sent=Sent(model, noise, replay, echoed),
            coordinates=self.coordinates,
            shapes=shapes,
            family=family,
            steps=Steps(recipe.rate, recipe.generator_rate * recipe.rate, recipe.consistency),
            iterations=recipe.iterations,
            batch=recipe.batch,
            seeds=seeds,
        )

    def _generated(self, snapshots: list[Snapshot], count: int, rng: np.random.Generator) -> Pool:
        return generated(snapshots, count, self.shapes, self.context.family, rng)

    def _trusted(self, mean: FloatArray, update: UpdateId) -> FloatArray:
        """Each layer of a noisy update, shrunk according to its noise (James and Stein)."""
        sigma = self.context.plan.head_sigma
        if sigma is None:
            return mean
        noise = sigma * self.recipe.norm / update.expected(self.context.plan)
        parts = []
        for layer in self.shapes.split(mean):
            least = layer.size + self.recipe.trust * np.sqrt(2 * layer.size)
            squared = max(float(np.square(layer).sum()), 1e-30)
            parts.append(layer.ravel() * max(0.0, 1.0 - least * noise**2 / squared))
        return np.concatenate(parts)
