"""A node's own rows, embedded by its own encoder through its own cache. PRIVATE."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cslr.data.own import load_own
from cslr.data.partition import assign_clients
from cslr.errors import ConfigError
from cslr.federation.parties.charter import Charter
from cslr.federation.simulation import Population
from cslr.runs.deployment.source import Source
from cslr.runs.embedded import EmbeddedStream, embed_stream
from cslr.runs.prepare import population_of
from cslr.seeding import Seeds

__all__ = ["check_encoder", "rows_of_file", "rows_of_part"]


def rows_of_part(source: Source, charter: Charter, part: int) -> Population:
    """What node ``part`` holds of an embedded stream: rows are dealt out as in a simulation."""
    config = source.config(charter.unit, charter.epsilon, charter.delta, charter.members)
    embedded = embed_stream(source.with_rows(), config, 0.0, progress=False)
    check_encoder(embedded, charter)
    everybody = population_of(config, embedded, source.seed)
    rng = Seeds(source.seed).at("partition")
    clients, rows = assign_clients(embedded.stream, config.stream, rng)
    holder = np.repeat(clients, np.diff(embedded.train.starts)[rows])
    return _held(everybody, np.flatnonzero(holder == part), part)


def rows_of_file(source: Source, charter: Charter, data: Path) -> Population:
    """The rows of a file of this node's own, as declared."""
    declaration = source.declared()
    if declaration is None:
        raise ConfigError(f"{charter.name!r} shares out an embedded stream; there are no own rows")
    own = load_own(data, declaration, source.public)
    config = source.config(charter.unit, charter.epsilon, charter.delta, charter.members)
    embedded = embed_stream(own.stream, config, 0.0, progress=False)
    check_encoder(embedded, charter)
    return population_of(config, embedded, source.seed)


def check_encoder(embedded: EmbeddedStream, charter: Charter) -> None:
    """Refuse another encoder than the one that was agreed on."""
    if embedded.encoder != charter.encoder:
        raise ConfigError(
            f"this node runs the encoder {embedded.encoder}, and {charter.encoder} was agreed on; "
            "install the version that the federation uses"
        )


def _held(everybody: Population, mine: np.ndarray, part: int) -> Population:
    """The part of a population at these places; without rows one unit that says nothing."""
    units = np.unique(everybody.clients[mine])
    held = everybody.held[mine]
    return Population(
        everybody.z[held],
        everybody.labels[held],
        everybody.tasks[held],
        np.searchsorted(units, everybody.clients[mine]),
        max(1, len(units)),
        targets=None if everybody.targets is None else everybody.targets[held],
        ids=everybody.addresses[units] if len(units) else np.array([-1 - part]),
    )
