"""A node's own rows, embedded by its own encoder through its own cache. PRIVATE."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cslr.config import Config
from cslr.data.own import load_own
from cslr.data.own.load import OR_SKIP
from cslr.data.stream import Stream, assign_clients
from cslr.errors import ConfigError, DataError
from cslr.federation.parties.charter import Charter
from cslr.federation.simulation import Population
from cslr.runs.deployment.source import Source
from cslr.runs.embedded import EmbeddedStream, embed_stream
from cslr.runs.prepare import population_of
from cslr.seeding import Seeds

__all__ = ["check_encoder", "check_rows", "embedded_rows", "rows_of_node"]


def embedded_rows(
    source: Source, charter: Charter, rows: dict[str, str | int]
) -> tuple[Config, EmbeddedStream]:
    """A node's train and test rows, embedded: of its own file, or of a whole embedded stream."""
    stream = _read(source, rows)
    config = source.config(charter)
    embedded = embed_stream(stream, config, 0.0, progress=False)
    check_encoder(embedded, charter)
    return config, embedded


def check_rows(source: Source, charter: Charter, rows: dict[str, str | int]) -> None:
    """Refuse rows that a node could not learn from, before it joins; nothing is embedded."""
    part = rows.get("part")
    if source.declared() is None:
        if not isinstance(part, int) or not 0 <= part < charter.members:
            given = f"--data {rows['data']}" if "data" in rows else f"--part {part}"
            raise ConfigError(
                f"{given}: nodes of {charter.name!r} share out the embedded stream "
                f"{source.stream!r}; give --part N, from 0 to {charter.members - 1}"
            )
        return
    if part is not None:
        raise ConfigError(
            f"--part {part}: nodes of {charter.name!r} have rows of their own; give --data FILE"
        )
    _read(source, rows)


def _read(source: Source, rows: dict[str, str | int]) -> Stream:
    """The rows of a node's own file, or of the whole embedded stream."""
    declaration = source.declared()
    if declaration is None:
        return source.with_rows()
    try:
        return load_own(Path(str(rows["data"])), declaration, source.public).stream
    except DataError as error:
        raise DataError(str(error).replace(OR_SKIP, "")) from None  # nodes have no such option


def rows_of_node(source: Source, charter: Charter, rows: dict[str, str | int]) -> Population:
    """What a node learns from: its own file, or its part of an embedded stream.

    The rows of an embedded stream are assigned to nodes as a simulation assigns them to clients.
    """
    config, embedded = embedded_rows(source, charter, rows)
    everybody = population_of(config, embedded, source.seed)
    part = rows.get("part")
    if not isinstance(part, int):
        _check_one_unit(everybody, charter)
        return everybody
    rng = Seeds(source.seed).at("partition")
    clients, held = assign_clients(embedded.stream, config.stream, rng)
    holder = np.repeat(clients, np.diff(embedded.train.starts)[held])
    return _held(everybody, np.flatnonzero(holder == part), part)


def _check_one_unit(everybody: Population, charter: Charter) -> None:
    """Refuse rows of several clients where the node is the unit: each would add a vector."""
    clients = len(np.unique(everybody.clients))
    if charter.unit == "client" and clients > 1:
        raise ConfigError(
            f"this node's file has rows of {clients} clients, but the node as a whole is hidden; "
            "give all rows the same client, or found the federation with unit = 'person'"
        )


def check_encoder(embedded: EmbeddedStream, charter: Charter) -> None:
    """Refuse another encoder than the one that was agreed on."""
    if embedded.encoder != charter.encoder:
        raise ConfigError(
            f"this node runs the encoder {embedded.encoder}, and {charter.encoder} was agreed on; "
            "install the version that the federation uses"
        )


def _held(everybody: Population, positions: np.ndarray, part: int) -> Population:
    """The part of a population at these positions of ``held``; without rows, one unit with none."""
    units = np.unique(everybody.clients[positions])
    held = everybody.held[positions]
    return Population(
        everybody.z[held],
        everybody.labels[held],
        everybody.tasks[held],
        np.searchsorted(units, everybody.clients[positions]),
        max(1, len(units)),
        targets=None if everybody.targets is None else everybody.targets[held],
        ids=everybody.addresses[units] if len(units) else np.array([-1 - part]),
    )
