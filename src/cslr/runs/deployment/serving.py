"""The server of a federation: learns every task over a transport and sends results to nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from cslr.federation.parties.charter import Charter, Roster, read_model
from cslr.federation.parties.coordinator import Coordinator, Counters, Event, Transport
from cslr.federation.parties.question import digest_of
from cslr.federation.parties.remote import RemoteClients, RemoteCohort
from cslr.federation.parties.result_files import pack_result
from cslr.files import write_atomic
from cslr.methods.cslr import stages
from cslr.privacy.accounting import ADVERSARIES
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import EphemeralKeys
from cslr.protocol.evaluation import LABEL
from cslr.runs.deployment.founding import public_context, public_side, wanted_of
from cslr.runs.deployment.source import Source
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import EmbeddedStream
from cslr.runs.measure import counted_by, plain
from cslr.runs.predict import ModelFacts

__all__ = ["PATIENCE", "Served", "Status", "learn_remotely"]

PATIENCE: Final = 300.0
"""Seconds to wait for nodes that are away, before each session."""


@dataclass
class Status:
    """The state of a run, in a file for people and programs. Nothing in it is private."""

    path: Path
    members: tuple[str, ...]
    on_line: Callable[[str], None] = lambda line: None
    state: dict[str, Any] = field(default_factory=dict)

    def note(self, event: Event) -> None:
        """Record an event of a coordinator."""
        names = [self.members[number] for number in event.members]
        self.state |= {"phase": event.what, **asdict(event), "members": names}
        self.state.setdefault("log", []).append(
            {"time": round(time.time(), 1), "what": event.what, "members": names}
        )
        self.write()
        detail = f" · {event.detail}" if event.detail else ""
        label = f"{event.release:8} " if event.release else ""
        self.on_line(f"{label}{event.what:9} {', '.join(names)}{detail}")

    def write(self, **more: Any) -> None:
        """Write the file again, with these values added."""
        self.state |= more
        write_atomic(self.path, json.dumps(self.state, indent=2).encode() + b"\n")


@dataclass(frozen=True)
class Served:
    """A federation's folder on its server."""

    path: Path

    @property
    def charter(self) -> Charter:
        """What was agreed on."""
        return read_model(self.path / "offer" / "charter.json", Charter)

    @property
    def source(self) -> Source:
        """What is declared about rows."""
        return read_model(self.path / "offer" / "source.json", Source)

    @property
    def roster(self) -> Roster:
        """The members."""
        return read_model(self.path / "offer" / "roster.json", Roster)

    @property
    def run(self) -> Path:
        """Released values and the model: a run directory for `cslr predict`."""
        return self.path / "server" / "run"

    def status(self, on_line: Callable[[str], None] = lambda line: None) -> Status:
        """The status of its run."""
        names = tuple(member.name for member in self.roster.members)
        return Status(self.path / "status.json", names, on_line)


def learn_remotely(served: Served, transport: Transport, status: Status, seconds: float) -> None:
    """Learn every task that was not released yet, and send the result to all nodes after each.

    seconds: the deadline of an exchange.
    """
    charter, source = served.charter, served.source
    wanted = wanted_of(charter, source)
    embedded = public_side(source, wanted)
    config = source.config(charter)
    directory = RunDirectory(served.run, config)
    directory.begin()
    counters = Counters.at(served.path / "server" / "counters.json")
    terms = served.roster.terms(charter)
    attempts = 1 + charter.spare
    coordinator = Coordinator(terms, transport, counters, seconds, attempts, PATIENCE, status.note)
    keys = EphemeralKeys(served.path / "server" / "keys")
    path = served.path / "server" / "ledger.jsonl"
    with Ledger.at(path, charter.federation, keys) as ledger:
        keep = directory.seed(source.seed, ledger)
        context = replace(
            public_context(embedded, charter.plan, wanted),
            clients=RemoteClients(charter, coordinator),
            ledger=ledger,
            keep=keep,
        )
        _send_agreement(served, transport, seconds)
        for after, stage in enumerate(stages(context)):
            for file, arrays in stage().artefacts.items():
                keep.save_arrays(file, arrays)
            _facts(embedded, source, after).save(directory.path)
            if after:
                _send_result(directory.path, source.seed, transport, seconds)
            _write_status(status, ledger, coordinator, charter, tasks=after)
        if charter.evaluation:
            head = digest_of((directory.path / f"seed-{source.seed}/head.safetensors").read_bytes())
            counted = counted_by(lambda: RemoteCohort(coordinator, head), context)
            if directory.find(kind="evaluation", seed=source.seed) is None:
                directory.note(kind="evaluation", seed=source.seed, **counted)
            _write_status(status, ledger, coordinator, charter, evaluation=counted)
    status.write(phase="finished")


def _write_status(
    status: Status, ledger: Ledger, coordinator: Coordinator, charter: Charter, **more: Any
) -> None:
    """Write ε so far and promised, the number of exchanges, and ``more``."""
    epsilon = {who: plain(ledger.epsilon("end_to_end", who)) for who in ADVERSARIES}
    promised = {"promised": charter.epsilon, "spare": charter.spare}
    status.write(epsilon=epsilon, **promised, exchanges=coordinator.exchanges, **more)


def _send_agreement(served: Served, transport: Transport, seconds: float) -> None:
    """Send the agreement to nodes without it; an empty question finds out which these are."""
    content = (served.path / "offer" / "agreement.safetensors").read_bytes()
    replies = transport.ask("agreement", dict.fromkeys(transport.present(), b""), seconds)
    without = [member for member, reply in replies.items() if reply.body == b"\0"]
    transport.ask("agreement", dict.fromkeys(without, content), 5 * seconds)


def _send_result(run: Path, seed: int, transport: Transport, seconds: float) -> None:
    names = ["config.json", "model.json"]
    files = sorted((run / f"seed-{seed}").glob("*.safetensors"))
    names += [f"seed-{seed}/{file.name}" for file in files if file.stem != LABEL]
    body = pack_result({name: (run / name).read_bytes() for name in names})
    transport.ask("result", dict.fromkeys(transport.present(), body), 5 * seconds)


def _facts(embedded: EmbeddedStream, source: Source, tasks: int) -> ModelFacts:
    """The public facts for using the head after so many tasks."""
    stream = embedded.stream
    return ModelFacts(
        "cslr",
        stream.family,
        stream.scenario(None),
        tuple(label.name for label in stream.labels),
        {task.name: task.labels for task in stream.tasks[:tasks]},
        source.encoder,
        embedded.encoder,
        (source.seed,),
    )
