"""``cslr federation``: create a federation across machines, join it, run it."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from cslr.errors import ConfigError

if TYPE_CHECKING:
    from cslr.federation.parties.charter import Member

__all__ = ["federation_app"]

federation_app = typer.Typer(
    help="Train across machines, over Flower, with a secure sum and noise from the nodes.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
_Folder = Annotated[Path, typer.Argument(help="The federation's folder on its server.")]
_LEAST: Final = 3
_MOST: Final = 10_000
"""Fewest and most nodes, as for a secure sum, whose module takes long to import."""
_Tasks = Annotated[int | None, typer.Option(min=1, help="Use only the first N tasks.")]
_Seconds = Annotated[
    float, typer.Option(min=1, max=86_400, help="Deadline of one exchange, in seconds.")
]
_Head = Annotated[
    Literal["released", "rounds"],
    typer.Option(help="Train the head on released statistics, or by noised gradient rounds."),
]
_Evaluate = Annotated[
    Literal["shown", "private"],
    typer.Option(help="Scores: shown on each node's own screen, or a noised count within ε."),
]


@federation_app.callback()
def _needs_flower() -> None:
    if find_spec("flwr") is None:
        raise ConfigError("`cslr federation` needs an extra: pip install 'cslr[flower]'")
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")


def _stop_on_sigterm() -> None:
    """Treat SIGTERM like Ctrl-C, so that every process that was started is stopped, too."""

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)


@federation_app.command("init")
def init_command(
    folder: _Folder,
    nodes: Annotated[
        int | None,
        typer.Option(
            min=_LEAST,
            max=_MOST,
            help=r"Number of nodes, at least 3. \[5; with --declaration: its clients]",
        ),
    ] = None,
    stream: Annotated[
        str | None, typer.Option(help="Embedded stream whose rows are shared out to the nodes.")
    ] = None,
    declaration: Annotated[
        Path | None, typer.Option(help="Public declaration of the rows that nodes hold.")
    ] = None,
    tasks: _Tasks = None,
    host: Annotated[
        str, typer.Option(help="Host name or address at which nodes reach this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the SuperLink.")] = 9092,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help=r"ε guaranteed to every unit of privacy. \[8; with --declaration: declared]"
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help=r"δ of the guarantee. \[1e-5; with --declaration: declared]"),
    ] = None,
    unit: Annotated[
        Literal["client", "person"] | None,
        typer.Option(
            help="Unit of privacy: client (a node) or person (one inside a node). "
            r"\[person; with --declaration: declared]"
        ),
    ] = None,
    threshold: Annotated[
        int | None,
        typer.Option(
            min=1, help=r"t: fewest nodes that can complete a sum. \[at least two thirds]"
        ),
    ] = None,
    colluders: Annotated[
        int | None, typer.Option(min=1, help=r"c: number of nodes that may collude. \[a tenth]")
    ] = None,
    spare: Annotated[
        int, typer.Option(min=0, help="Number of sums that may be repeated after a failure.")
    ] = 1,
    head: _Head = "released",
    evaluate: _Evaluate = "shown",
    encoder: Annotated[str, typer.Option(help="The encoder that every node runs.")] = "minilm",
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of anchors and heads; not of the noise.")
    ] = 13,
) -> None:
    """Create a federation: certificates, plan, agreement, and the offer for the nodes.

    Example: `cslr federation init hospitals --declaration letters.cslr.toml --host fed.org`
    """
    from cslr.federation.parties.charter import fingerprint
    from cslr.methods.gradient_rounds import ROUNDS
    from cslr.runs.deployment.founding import Wanted, found, usual_colluders, usual_threshold
    from cslr.runs.deployment.server_machine import make_server_keys
    from cslr.runs.deployment.serving import Served
    from cslr.runs.deployment.source import (
        refuse_contradictions,
        source_of_declaration,
        source_of_stream,
    )

    if (folder / "offer").exists():
        raise ConfigError(f"{folder} is a federation already; choose another folder")
    if declaration is not None:
        source = source_of_declaration(declaration, encoder, seed)
        declared = source.declared()
        assert declared is not None
        given: dict[str, object] = {"nodes": nodes, "stream": stream, "tasks": tasks}
        given |= {"epsilon": epsilon, "delta": delta, "unit": unit}
        refuse_contradictions(declaration, declared, given)
        epsilon, delta = declared.privacy.epsilon, declared.privacy.delta
        unit, nodes = declared.privacy.unit, declared.clients
    else:
        source = source_of_stream(stream or "clinic", tasks, encoder, seed)
        nodes, unit = 5 if nodes is None else nodes, unit or "person"
        epsilon, delta = 8.0 if epsilon is None else epsilon, 1e-5 if delta is None else delta
    c = colluders or usual_colluders(nodes)
    t = threshold or usual_threshold(nodes, c)
    name = (declaration.name if declaration is not None else stream or "clinic").split(".")[0]
    wanted = Wanted(
        name,
        source,
        nodes,
        t,
        c,
        spare,
        epsilon,
        delta,
        unit,
        rounds=ROUNDS if head == "rounds" else 0,
        evaluation=evaluate == "private",
    )
    founded = found(wanted)
    founded.save(folder / "offer")
    (folder / "members").mkdir()
    make_server_keys(Served(folder), host, port)
    charter = founded.charter
    typer.echo(
        f"{charter.name}: n = {nodes}, t = {t}, c = {c}, ε = {epsilon:g} for one {unit}, "
        f"σ = {charter.noise:.3f}\n"
        f"charter      {fingerprint(charter.canonical())}\n"
        f"Give {folder / 'offer'} to every node. Put the member files that they send back into "
        f"{folder / 'members'}, then: cslr federation serve {folder}"
    )
    if founded.suits_rounds:
        typer.echo(
            f"note: with so many units gradients teach a better head (--head rounds, {ROUNDS} sums "
            "a task instead of one); to choose them, init another folder",
            err=True,
        )


@federation_app.command("join")
def join_command(
    folder: Annotated[Path, typer.Argument(help="The node's own folder.")],
    offer: Annotated[Path | None, typer.Option(help="Folder of the server's offer.")] = None,
    name: Annotated[str | None, typer.Option(help="The node's name.")] = None,
    data: Annotated[Path | None, typer.Option(help="File of the node's own rows.")] = None,
    part: Annotated[
        int | None,
        typer.Option(min=0, help="Instead of --data: a part of the embedded stream, from 0."),
    ] = None,
    sessions: Annotated[
        int | None,
        typer.Option(
            min=1, help=r"Most masked vectors this node will ever send. \[planned and spare]"
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compute the agreement again and compare it.")
    ] = False,
    roster: Annotated[
        Path | None, typer.Option(help="Pin the members that this roster file lists.")
    ] = None,
    change: Annotated[
        bool, typer.Option("--change", help="With --roster: accept a change of members.")
    ] = False,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Make new keys for a node that has already joined.")
    ] = False,
) -> None:
    """Join: make keys on this machine and pin the offer; later, pin the roster.

    Example: `cslr federation join node --offer offer --name berlin --data letters.csv`
    """
    from cslr.federation.parties.charter import Roster, read_model
    from cslr.federation.parties.membership import pin_roster
    from cslr.runs.deployment.joining import read_offer, verify_agreement
    from cslr.runs.deployment.node_machine import join_machine, renew_machine
    from cslr.runs.deployment.node_rows import check_rows

    if new_key:
        _show_application(folder, renew_machine(folder).member)
        return
    if roster is not None:
        mark = pin_roster(folder, read_model(roster, Roster), change)
        typer.echo(
            f"roster       {mark}\nCompare it with the other members, then: "
            f"cslr federation node {folder}"
        )
        return
    if offer is None or name is None or (data is None) == (part is None):
        raise ConfigError(
            "give --offer, --name and either --data FILE or --part N; or --roster; or --new-key"
        )
    offered = read_offer(offer)
    if verify:
        verify_agreement(offered)
    rows: dict[str, str | int] = {"part": part} if part is not None else {}
    if data is not None:
        rows = {"data": str(data.resolve())}
    check_rows(offered.source, offered.charter, rows)
    _show_application(folder, join_machine(offer, folder, name, rows, sessions).member)


def _show_application(folder: Path, member: Member) -> None:
    from cslr.federation.parties.charter import fingerprint

    typer.echo(
        f"identity     {fingerprint(member.key)}\n"
        f"Send {folder / f'{member.name}.member.json'} to the server, and read the line above to "
        "its operator over another channel."
    )


@federation_app.command("serve")
def serve_command(
    folder: _Folder,
    members: Annotated[
        int | None,
        typer.Option(
            min=1, help="Confirm the number of members if it is not as planned or changed."
        ),
    ] = None,
    new_certificate: Annotated[
        bool, typer.Option("--new-certificate", help="Renew the server's TLS key first.")
    ] = False,
) -> None:
    """Run the SuperLink until Ctrl-C or `cslr federation down`.

    Example: `cslr federation serve hospitals`
    """
    from cslr.federation.parties.charter import fingerprint
    from cslr.runs.deployment.server_machine import (
        address_of,
        admit,
        make_server_certificate,
        serve,
    )
    from cslr.runs.deployment.serving import Served

    _stop_on_sigterm()
    served = Served(folder)
    roster = admit(served, members)
    if new_certificate:
        make_server_certificate(served, address_of(folder / "offer").rpartition(":")[0])
    typer.echo(f"roster       {fingerprint(roster.canonical())}  ({folder / 'offer/roster.json'})")
    serve(served, lambda: True, typer.echo)


@federation_app.command("node")
def node_command(
    folder: Annotated[Path, typer.Argument(help="The node's own folder.")],
) -> None:
    """Run a node with the cslr installed on this machine: answer the server until Ctrl-C.

    Example: `cslr federation node node`
    """
    from cslr.runs.deployment.node_machine import run_node

    _stop_on_sigterm()
    run_node(folder, lambda: True, typer.echo)


@federation_app.command("run")
def run_federation_command(
    folder: _Folder,
    seconds: _Seconds = 120.0,
    present: Annotated[
        int | None, typer.Option(min=1, help=r"Begin when so many nodes are connected. \[all]")
    ] = None,
) -> None:
    """Train on every task that was not released yet, and send the result to the nodes.

    Example: `cslr federation run hospitals`
    """
    from cslr.runs.deployment.server_machine import run_server
    from cslr.runs.deployment.serving import Served

    _stop_on_sigterm()
    served = Served(folder)
    run_server(served, served.status(typer.echo), seconds, present)
    typer.echo(f'done: cslr predict {served.run} --text "..."')


@federation_app.command("status")
def status_command(
    folder: _Folder,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Show the state of a run across machines and the ε spent.

    Example: `cslr federation status hospitals --json`
    """
    path = folder / "status.json"
    if not path.is_file():
        raise ConfigError(f"{folder} has no run yet; start one with `cslr federation run {folder}`")
    state = json.loads(path.read_bytes())
    if as_json:
        typer.echo(json.dumps(state))
        return
    typer.echo(f"phase    {state.get('phase')}  {state.get('release', '')}")
    typer.echo(f"nodes    {', '.join(state.get('members', []))}")
    typer.echo(f"tasks    {state.get('tasks', 0)}")
    if "evaluation" in state:
        shares, errors = (state["evaluation"][name] for name in ("accuracy", "standard_error"))
        scores = (
            "too few test rows" if share is None else f"{100 * share:.1f} ± {100 * error:.1f} %"
            for share, error in zip(shares, errors, strict=True)
        )
        typer.echo(f"accuracy {', '.join(scores)}  (by task, noised, within ε)")
    spent, promised = state.get("epsilon", {}), state.get("promised")
    of = "" if promised is None else f" of {promised:g}"
    for who, epsilon in spent.items():
        shown = "∞" if epsilon is None else f"{epsilon:.3f}"
        typer.echo(f"ε        {shown}{of} against {who}")
    if spent and state.get("spare") and state.get("phase") == "finished":
        typer.echo(f"         the rest is for repeated sessions (--spare {state['spare']})")


@federation_app.command("down")
def down_command(folder: _Folder) -> None:
    """Stop the SuperLink that `cslr federation serve` runs for this folder.

    Example: `cslr federation down hospitals`
    """
    path = folder / "server" / "serve.pid"
    if not path.is_file():
        typer.echo("nothing is running")
        return
    try:
        os.kill(int(path.read_text()), signal.SIGTERM)
    except ProcessLookupError:
        path.unlink(missing_ok=True)
    typer.echo("stopped")


@federation_app.command("try")
def try_command(
    nodes: Annotated[
        int, typer.Option(min=_LEAST, max=_MOST, help="Number of nodes, at least 3.")
    ] = 5,
    stream: Annotated[str, typer.Option(help="clinic, desk or ward.")] = "clinic",
    tasks: _Tasks = None,
    epsilon: Annotated[float, typer.Option(help="ε guaranteed to every person.")] = 8.0,
    head: _Head = "released",
    seconds: _Seconds = 120.0,
    folder: Annotated[
        Path | None, typer.Option(help=r"Keep all files here. \[a temporary folder]")
    ] = None,
) -> None:
    """Try a whole federation on this machine, each party in its own process; none is left running.

    Example: `cslr federation try --nodes 5`
    """
    from cslr.federation.flower.processes import free_port
    from cslr.methods.gradient_rounds import ROUNDS
    from cslr.runs.deployment.founding import Wanted, usual_colluders, usual_threshold
    from cslr.runs.deployment.source import source_of_stream
    from cslr.runs.deployment.trial import prepare_trial, try_federation

    _stop_on_sigterm()
    source = source_of_stream(stream, tasks, "minilm", 13)
    c = usual_colluders(nodes)
    sizes = (nodes, usual_threshold(nodes, c), c, 1)
    wanted = Wanted(
        stream,
        source,
        *sizes,
        epsilon,
        1e-5,
        "person",
        rounds=ROUNDS if head == "rounds" else 0,
    )
    with tempfile.TemporaryDirectory(prefix="cslr-try-") as place:
        served = prepare_trial(folder or Path(place) / "federation", wanted, free_port())
        typer.echo(f"created {stream} with {nodes} nodes under {served.path}")
        try_federation(served, seconds, typer.echo)
        status_command(served.path)
