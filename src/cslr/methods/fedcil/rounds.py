"""The rounds of FedCIL: what the server sends, what comes back, and what it makes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.errors import ConfigError
from cslr.methods.cslr import agree, prior_head
from cslr.methods.fedcil.devices import Held, Told, updates
from cslr.methods.fedcil.networks import Shapes
from cslr.methods.fedcil.pools import Pool, Snapshot, echoes, generated, imitate, learn, normal
from cslr.methods.fedcil.public_start import Coordinates, prior_rows
from cslr.methods.fedcil.schedules import Recipe
from cslr.methods.fedcil.training import Steps
from cslr.methods.method import MethodContext
from cslr.privacy.values import Summed
from cslr.protocol.head import Head
from cslr.protocol.targets import label_targets
from cslr.protocol.updates import UpdateId, release_update, sum_of_updates
from cslr.seeding import Seeds

__all__ = ["Federation"]


@dataclass(frozen=True, eq=False)
class Federation:
    """The public side of a run: everything but the clients' rows."""

    context: MethodContext
    recipe: Recipe
    coordinates: Coordinates
    prior: Pool | None
    shapes: Shapes

    @classmethod
    def of(cls, context: MethodContext, recipe: Recipe) -> Federation:
        """Coordinates, prior and shapes of both networks, from public things alone."""
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
        """(D,) the model before any task: what label texts give, if they may be used."""
        context, recipe = self.context, self.recipe
        model = self.shapes.initial(context.seeds.at("initial gan"))
        if self.prior is None:
            return model
        rng = context.seeds.at("imitation")
        model = imitate(model, self.prior, recipe.imitation, 256, self.shapes, 1e-3, rng)
        critic = self.coordinates.critic(prior_head(context))
        return np.concatenate([model[: -len(critic)], critic]).astype(np.float32)

    def head(self, model: FloatArray) -> Head:
        """The critic's class path."""
        return self.coordinates.head(model, self.shapes)

    def after_task(self, task: int, snapshots: tuple[FloatArray, ...]) -> FloatArray:
        """The model after the rounds of a task; ``snapshots`` are those of all stages before."""
        model, seeds = snapshots[-1], self.context.seeds.under("fedcil", task)
        teachers = self._teachers(task, snapshots)
        replay = None
        if teachers:
            replay = self._generated(teachers, self.recipe.pool, seeds.at("replay"))
        for number in range(self.recipe.rounds):
            model = self._round(task, number, model, teachers, replay, seeds.under(number))
        return model

    def _teachers(self, task: int, snapshots: tuple[FloatArray, ...]) -> list[Snapshot]:
        """Released models of earlier tasks, each for its own labels, and the prior for the rest."""
        context = self.context
        own = [np.array(labels) for labels in context.tasks]
        teachers = [Snapshot(snapshots[t + 1], own[t]) for t in range(task)]
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
        where = UpdateId(task, number, context.population.count)

        def ask() -> Summed:
            vectors = self._updates(task, number, model, replay, seeds)
            return sum_of_updates(vectors, recipe.norm)

        update = release_update(ask, where, plan, ledger, keep)
        model = (model + self._trusted(update, where)).astype(np.float32)
        taught = [*teachers, Snapshot(model, np.array(context.tasks[task]))]
        pool = self._generated(taught, 4 * recipe.pool, seeds.at("teachers"))
        steps = Steps(recipe.server_rate, 0.0, 0.0)
        rng = seeds.at("consolidation")
        shapes, family = self.shapes, context.family
        return learn(model, pool, recipe.consolidation, 128, shapes, family, steps, rng)

    def _updates(
        self, task: int, number: int, model: FloatArray, replay: Pool | None, seeds: Seeds
    ) -> FloatArray:
        """(b, D) of the clients that take part; nobody's is a row of zeros."""
        recipe, family = self.recipe, self.context.family
        heard = None
        if number and recipe.consistency:
            heard = echoes(model, recipe.pool // 4, self.shapes, family, seeds.at("echoes"))
        told = Told(model, normal(seeds.at("noise"), recipe.pool, self.shapes.noise), replay, heard)
        steps = Steps(recipe.rate, recipe.generator_rate * recipe.rate, recipe.consistency)
        iterations, batch = recipe.iterations, recipe.batch
        vectors = [
            updates(held, told, iterations, batch, self.shapes, family, steps, seeds)
            for held in self._held(task, number)
        ]
        return np.concatenate([np.zeros((1, self.shapes.size)), *vectors])

    def _held(self, task: int, number: int) -> list[Held]:
        """The rows of the task that the cohort of a round holds, in batches of clients."""
        population = self.context.population
        cohort = self.context.cohort(task, number)
        if cohort.hostile:
            raise ConfigError("fedcil does not study hostile clients; use cslr or dp-sgd")
        mine = population.tasks[population.held] == task
        mine &= cohort.taking_part[population.clients]
        owners = np.unique(population.clients[mine])
        batches = np.split(owners, len(owners)) if cohort.alone and len(owners) else [owners]
        return [self._held_by(batch, mine) for batch in batches]

    def _held_by(self, clients: IntArray, mine: BoolArray) -> Held:
        """The rows that these clients hold among ``mine`` (h,)."""
        population = self.context.population
        mine = mine & np.isin(population.clients, clients)
        places = population.held
        rows, place = np.unique(places[mine], return_inverse=True)
        owners = population.clients[mine]
        if population.targets is None:
            targets = label_targets(population.labels[rows], self.context.labels)
        else:
            targets = population.targets[rows]
        pool = Pool(
            torch.from_numpy(self.coordinates.into(population.z[rows])),
            torch.from_numpy(population.labels[rows]),
            torch.from_numpy(targets.astype(np.float32)),
        )
        addresses = population.addresses[clients].tolist()
        return Held(pool, addresses, [place[owners == client] for client in clients])

    def _generated(self, snapshots: list[Snapshot], count: int, rng: np.random.Generator) -> Pool:
        return generated(snapshots, count, self.shapes, self.context.family, rng)

    def _trusted(self, update: FloatArray, where: UpdateId) -> FloatArray:
        """Each layer of a noisy update as far as it goes beyond its noise (James and Stein)."""
        sigma = self.context.plan.head_sigma
        if sigma is None:
            return update
        noise = sigma * self.recipe.norm / where.expected(self.context.plan)
        parts = []
        for layer in self.shapes.split(update):
            least = layer.size + self.recipe.trust * np.sqrt(2 * layer.size)
            found = max(float(np.square(layer).sum()), 1e-30)
            parts.append(layer.ravel() * max(0.0, 1.0 - least * noise**2 / found))
        return np.concatenate(parts)
