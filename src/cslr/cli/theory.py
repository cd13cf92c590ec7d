"""The program's verbs about the paper's theory: how many anchors, and how good a replay is.

``cslr anchors --encoders`` asks whether clients with different encoders could share them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from cslr.config import Config, load_config
from cslr.errors import ConfigError

__all__ = ["anchors_command", "quality_command"]

_Text: TypeAlias = str | None
_Number: TypeAlias = int | None
_Share: TypeAlias = float | None
_File: TypeAlias = Path | None

_THEOREM, _STREAM = "Theorem 2 alone", "A stream's own candidates"
_ENCODERS = "Different encoders, on public sentences alone"
_OF_ENCODERS = ("stream.name", "stream.data", "stream.rows", "stream.scenario", "layer", "seeds")
"""Settings that have a meaning where encoders are compared."""


def _theorem(help: str, *flags: str) -> Any:
    return typer.Option(*flags, help=help, rich_help_panel=_THEOREM)


def _stream(help: str, *flags: str) -> Any:
    return typer.Option(*flags, help=help, rich_help_panel=_STREAM)


def _compared(help: str, *flags: str) -> Any:
    return typer.Option(*flags, help=help, rich_help_panel=_ENCODERS)


def anchors_command(
    config: Annotated[_File, typer.Argument(help="TOML file of a run; flags win over it.")] = None,
    candidates: Annotated[_Number, _theorem("N: candidates of all clients and tasks.")] = None,
    tasks: Annotated[_Number, _theorem("T; N = clients × tasks × list size.")] = None,
    hit: Annotated[_Share, _theorem("p: share of anchors that tell a pair apart.")] = None,
    failure: Annotated[float, typer.Option(help="η: how often some pair may be missed.")] = 0.05,
    clients: Annotated[_Number, typer.Option(help="Clients N of a task or of the stream.")] = None,
    list_size: Annotated[_Number, typer.Option(help="L: candidates per list.")] = None,
    anchor_count: Annotated[_Number, typer.Option(help="m: anchors to ask about.")] = None,
    stream: Annotated[_Text, _stream("A stream by name, as for `cslr run`.")] = None,
    data: Annotated[_File, _stream("Directory of data sets.")] = None,
    rows: Annotated[_Text, _stream("subset, all or held-out.")] = None,
    scenario: Annotated[_Text, _stream("class, domain or task.")] = None,
    alpha: Annotated[_Share, _stream("Dirichlet concentration.")] = None,
    prior: Annotated[_Text, _stream("labels or none.")] = None,
    dimension: Annotated[_Number, _stream("r: released directions.")] = None,
    sub_modes: Annotated[_Number, _stream("J: modes per label.")] = None,
    encoder: Annotated[_Text, _stream("minilm, mpnet, a local directory, or a hub name.")] = None,
    layer: Annotated[_Number, _stream("Tagging: hidden layer that words are taken from.")] = None,
    seed: Annotated[_Number, _stream("Of the partition and the anchors.")] = None,
    margin: Annotated[_Share, _stream("γ, in standard deviations of a signature.")] = None,
    sweep: Annotated[_Text, _stream("Numbers of anchors to try, e.g. 10,50,200.")] = None,
    encoders: Annotated[_Text, _compared("Two or more to compare, e.g. minilm,mpnet.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """How many anchors tell candidates apart: by Theorem 2, or by trying on a stream.

    With --candidates (or --clients, --tasks, --list-size) and --hit the theorem is applied and
    nothing is read. With --stream the hit rate and the margins of its simulated clients' lists are
    measured, and how well the public sentences cover their texts. That reads lists without noise:
    it is for studies and refuses rows of your own. With --encoders only public sentences and label
    texts are read: how well clients that run these encoders could work together.

    Example: `cslr anchors --clients 20 --tasks 4 --list-size 4 --hit 0.46`

    Example: `cslr anchors --stream ag-news --data DIR`

    Example: `cslr anchors --encoders minilm,mpnet`
    """
    about_stream: dict[str, Any] = {
        "stream.name": stream,
        "stream.data": data,
        "stream.rows": rows,
        "stream.scenario": scenario,
        "stream.alpha": alpha,
        "replay.prior": prior,
        "replay.dimension": dimension,
        "replay.sub_modes": sub_modes,
        "encoder": encoder,
        "layer": layer,
        "seeds": None if seed is None else [seed],
    }
    own = {"--margin": margin, "--sweep": sweep, **{_flag(k): v for k, v in about_stream.items()}}
    theirs = {"--candidates": candidates, "--tasks": tasks, "--hit": hit}
    counts = None if sweep is None else _counts(sweep)
    if encoders is not None:
        lists = {"--clients": clients, "--list-size": list_size, "--anchor-count": anchor_count}
        others = {_flag(k): v for k, v in about_stream.items() if k not in _OF_ENCODERS}
        _refuse(
            {**theirs, **lists, "--margin": margin, **others},
            "has no meaning where encoders are compared; leave it or --encoders out",
        )
        given = {name: value for name, value in about_stream.items() if value is not None}
        _compare(load_config(config, given), encoders, counts, as_json)
        return
    if config is None and stream is None and data is None:
        _refuse(own, "is about a stream: give --stream too")
        _prescribe(
            _count(candidates, clients, tasks, list_size), hit, failure, anchor_count, as_json
        )
        return
    _refuse(theirs, "is for the theorem alone; a stream has its own candidates and hit rate")
    about_stream |= {
        "stream.clients": clients,
        "replay.list_size": list_size,
        "replay.anchors": anchor_count,
    }
    given = {name: value for name, value in about_stream.items() if value is not None}
    _examine(load_config(config, given), margin, _share("--failure", failure), counts, as_json)


def _flag(name: str) -> str:
    """The flag of a setting."""
    special = {"stream.name": "--stream", "seeds": "--seed"}
    return special.get(name, "--" + name.split(".")[-1].replace("_", "-"))


def _refuse(given: dict[str, Any], why: str) -> None:
    for flag, value in given.items():
        if value is not None:
            raise ConfigError(f"{flag} {why}")


def _count(candidates: int | None, clients: int | None, tasks: int | None, size: int | None) -> int:
    """N as it was given, or as Theorem 2 counts it: Σ_t |C_t| L."""
    given = (clients, tasks, size)
    if candidates is not None:
        if any(number is not None for number in given):
            raise ConfigError(
                "--candidates says N already; leave --clients, --tasks and --list-size out"
            )
        return _positive("--candidates", candidates)
    if clients is None or tasks is None:
        raise ConfigError(
            "how many candidates? give --candidates, or --clients, --tasks and --list-size; or "
            "--stream, to measure"
        )
    return (
        _positive("--clients", clients)
        * _positive("--tasks", tasks)
        * _positive("--list-size", 1 if size is None else size)
    )


def _positive(flag: str, number: int) -> int:
    if number < 1:
        raise ConfigError(f"{flag} must be at least 1, not {number}")
    return number


def _share(flag: str, value: float) -> float:
    if not 0 < value < 1:
        raise ConfigError(f"{flag} must lie strictly between 0 and 1, not {value:g}")
    return value


def _counts(text: str) -> list[int]:
    try:
        return [_at_least_two(int(part)) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--sweep takes whole numbers with commas, not {text!r}") from None


def _at_least_two(number: int) -> int:
    if number < 2:
        raise ConfigError(f"--sweep: a signature needs at least 2 anchors, not {number}")
    return number


def _prescribe(
    candidates: int, hit: float | None, failure: float, anchors: int | None, as_json: bool
) -> None:
    from rich.console import Console

    from cslr.cli.show.theory import prescription_json, print_prescription
    from cslr.protocol.step2_sign import failure_bound
    from cslr.research.theory.anchors import prescribe

    if hit is None:
        raise ConfigError(
            "how visible are they? give --hit, the share of public sentences that tell a pair "
            "apart; `cslr anchors --stream NAME` measures it"
        )
    if not 0 < hit <= 1:
        raise ConfigError(f"--hit must lie in (0, 1], not {hit:g}")
    found = prescribe(candidates, hit, _share("--failure", failure))
    guarantee = None
    if anchors is not None:
        count = _positive("--anchor-count", anchors)
        guarantee = (count, failure_bound(candidates, hit, count))
    if as_json:
        typer.echo(json.dumps(prescription_json(found, guarantee)))
    else:
        print_prescription(found, guarantee, Console())


def _examine(
    config: Config, margin: float | None, failure: float, counts: list[int] | None, as_json: bool
) -> None:
    from rich.console import Console

    from cslr.cli.show.theory import examined_json, print_examined
    from cslr.research.theory.anchors import MARGIN, examine
    from cslr.runs.embedded import load_embedded
    from cslr.runs.own_data import is_own

    if is_own(config.stream) or config.privacy.mode == "enforced":
        raise ConfigError(
            "cslr anchors reads lists without noise, and these rows are somebody's: measure on a "
            "stream of public data (--stream), or apply the theorem with --candidates and --hit"
        )
    if margin is not None and not margin > 0:
        raise ConfigError(f"--margin must be positive, not {margin:g}")
    embedded = load_embedded(config, progress=True)
    found = examine(config, embedded, MARGIN if margin is None else margin, failure, counts)
    if as_json:
        typer.echo(json.dumps(examined_json(found)))
    else:
        print_examined(found, Console())


def _compare(config: Config, encoders: str, counts: list[int] | None, as_json: bool) -> None:
    from rich.console import Console

    from cslr.cli.show.theory import compared_json, print_compared
    from cslr.research.theory.encoders import compare

    names = [name.strip() for name in encoders.split(",")]
    found = compare(config, names, counts, progress=True)
    if as_json:
        typer.echo(json.dumps(compared_json(found)))
    else:
        print_compared(found, Console())


def quality_command(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A finished run's directory.")],
    samples: Annotated[
        int, typer.Option(min=20, help="Most rows of a task, and draws of its replay.")
    ] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """How far a run's replay lies from the rows it stands for, beside what was forgotten.

    Theorem 5 bounds forgetting by that distance. Reads the replay of a finished run and the test
    rows of its stream, without noise: for studies. Nothing is written.

    Example: `cslr quality runs/my-run`
    """
    from rich.console import Console

    from cslr.cli.show.theory import print_retention
    from cslr.research.theory.kept import load_run
    from cslr.research.theory.retention import retention
    from cslr.runs.embedded import load_embedded

    kept = load_run(run)
    found = retention(kept, load_embedded(kept.config, progress=True), samples)
    if as_json:
        typer.echo(json.dumps(found.as_json()))
    else:
        print_retention(found, Console())
