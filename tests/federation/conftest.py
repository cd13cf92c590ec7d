"""Federations in one process, and the noise keys that their nodes draw."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cslr.federation.parties import node as node_module
from tests.federation.parties.machines import Machines, N, context_of


@pytest.fixture
def drawn(monkeypatch):
    """The keys of all noise shares, by release."""
    keys: dict[str, list[bytes]] = {}
    honest = node_module.charge_share

    def recorded(own, charge, ledger):
        key = honest(own, charge, ledger)
        keys.setdefault(charge.label, []).append(key)
        return key

    monkeypatch.setattr(node_module, "charge_share", recorded)
    return keys


@pytest.fixture
def machines(world, tmp_path):
    made = []

    def make(family="classification", unit="person", cap=None, **more):
        population = world.population
        if unit == "client":  # a unit a node: five of them hold all rows
            population = replace(population, clients=population.clients % N, count=N)
        small = replace(world, population=population)
        made.append(Machines(tmp_path / "federation", context_of(small, family, unit, cap, **more)))
        return made[-1]

    yield make
    for each in made:
        each.close()
