"""Join a federation: a node makes its keys and pins what its operator agreed to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cslr.errors import BadField, ConfigError, TermsDiffer
from cslr.federation.parties.charter import Charter, Member, read_model
from cslr.federation.parties.node import Node
from cslr.federation.parties.node_files import NodeFiles, PinnedNode
from cslr.federation.parties.question import digest_of, unpack_agreement
from cslr.files import write_atomic
from cslr.privacy.ledger.records import agree, differences, plain
from cslr.runs.deployment.founding import found, wanted_of
from cslr.runs.deployment.node_figures import graded_rows
from cslr.runs.deployment.node_rows import rows_of_node
from cslr.runs.deployment.source import Source
from cslr.runs.predict import ModelFacts

__all__ = ["Offer", "join", "open_node", "read_offer", "verify_agreement"]


@dataclass(frozen=True)
class Offer:
    """What a node is given before it joins."""

    charter: Charter
    source: Source
    agreement: bytes


def read_offer(folder: Path) -> Offer:
    """The offer in a folder; refused unless its files belong together.

    What protects a unit is compared with the declaration even if the agreement is not verified.
    """
    charter = read_model(folder / "charter.json", Charter)
    source = read_model(folder / "source.json", Source)
    agreement = (folder / "agreement.safetensors").read_bytes()
    if source.digest != charter.declaration or digest_of(agreement) != charter.agreement:
        raise ConfigError(
            f"the files in {folder} do not belong together; ask the server for the offer again"
        )
    charter.plan  # noqa: B018  refuses noise that is too little for the promised ε
    _check_promise(charter, source, unpack_agreement(agreement).clients_per_person)
    return Offer(charter, source, agreement)


def _check_promise(charter: Charter, source: Source, clipped_for: int) -> None:
    """Refuse a charter or an agreement that protects a unit less than the declaration says.

    clipped_for: the number of nodes with rows of one person that the agreement's clip allows for.
    """
    declared = source.declared()
    shared = 1
    if declared is not None:
        least = declared.privacy
        if (
            charter.unit != least.unit
            or charter.epsilon > least.epsilon
            or charter.delta > least.delta
        ):
            raise ConfigError(
                f"the charter hides one {charter.unit} with ε = {charter.epsilon:g} and δ = "
                f"{charter.delta:g}; declared is one {least.unit} with ε = {least.epsilon:g} and "
                f"δ = {least.delta:g}; ask the server for a corrected offer"
            )
        shared = declared.clients_per_person if least.unit == "person" else 1
    if clipped_for < shared or (charter.evaluation and shared > 1):
        raise ConfigError(
            f"a person may have rows in {shared} nodes, but the offer clips as for {clipped_for} "
            "and counts right answers as for one; ask the server for a corrected offer"
        )


def verify_agreement(offer: Offer) -> None:
    """Build the agreement again from what is declared and public, and compare.

    Machines differ in last bits, so both are compared by sketches, as ledgers compare plans.
    """
    wanted = wanted_of(offer.charter, offer.source)
    computed, offered = (
        unpack_agreement(content) for content in (found(wanted).agreement, offer.agreement)
    )
    ours, theirs = plain(computed.public_facts()), plain(offered.public_facts())
    if not agree(theirs, ours):
        raise ConfigError(
            "the agreement is not what this machine makes of the declaration and the public "
            f"sentences; different: {differences(theirs, ours)}"
        )


def join(
    offer: Offer, folder: Path, name: str, rows: dict[str, str | int], sessions: int | None = None
) -> Member:
    """Make a node in ``folder``: its identity is made there and never leaves.

    sessions: the most masked vectors that may leave it; None: the planned and the spare ones.
    """
    charter = offer.charter
    most = sessions or charter.sessions
    files = NodeFiles(folder)
    pinned = PinnedNode(name=name, charter=charter, most_sessions=most, rows=rows)
    files.create(pinned)
    write_atomic(folder / "source.json", offer.source.model_dump_json().encode())
    files.keep_agreement(offer.agreement)
    member = files.member(name)
    member.save(folder / "member.json")
    return member


def open_node(folder: Path) -> Node:
    """The node in a folder, with its rows where its operator said they are."""
    files = NodeFiles(folder)
    pinned = files.pinned()
    source = read_model(folder / "source.json", Source)
    if source.digest != pinned.charter.declaration:
        raise ConfigError(f"{folder / 'source.json'} is not the one that was agreed on")
    charter, rows = pinned.charter, pinned.rows
    node = Node(files, lambda: rows_of_node(source, charter, rows))
    node.grade = lambda head: graded_rows(source, charter, rows, files.model, head)
    node.check_result = lambda result: _check_result(result, source, charter)
    return node


def _check_result(files: Mapping[str, bytes], source: Source, charter: Charter) -> None:
    """Refuse a model that does not fit the charter: `cslr predict` loads the encoder it names."""
    if "model.json" not in files:
        return
    try:
        facts = ModelFacts.from_bytes(files["model.json"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadField("the model of a result is damaged") from None
    agreed = {task.name: task.labels for task in charter.tasks[: len(facts.tasks)]}
    ours = ModelFacts(
        facts.method,
        charter.family,
        facts.scenario,
        charter.labels,
        agreed,
        source.encoder,
        charter.encoder,
        (source.seed,),
    )
    if facts != ours:
        raise TermsDiffer(
            "the model of a result has another encoder, other labels or other tasks than agreed"
        )
