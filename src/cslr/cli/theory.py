"""``cslr anchors`` and ``cslr quality``: how many anchors are needed, and how good a replay is.

``cslr anchors --encoders`` compares encoders that clients could use together.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from cslr.errors import ConfigError

if TYPE_CHECKING:
    from cslr.config import Config

__all__ = ["anchors_command", "quality_command"]

_Text: TypeAlias = str | None
_Number: TypeAlias = int | None
_Share: TypeAlias = float | None
_File: TypeAlias = Path | None

_THEOREM, _STREAM = "Theorem 2 only", "Measured on a stream"
_ENCODERS = "Different encoders, on public sentences only"
_OF_ENCODERS = ("stream.name", "stream.data", "stream.rows", "stream.scenario", "seeds")
"""Settings that apply when encoders are compared."""


def _theorem(help: str, *flags: str) -> Any:
    return typer.Option(*flags, help=help, rich_help_panel=_THEOREM)


def _stream(help: str, *flags: str) -> Any:
    return typer.Option(*flags, help=help, rich_help_panel=_STREAM)


def _compared(help: str, *flags: str) -> Any:
    return typer.Option(*flags, help=help, rich_help_panel=_ENCODERS)


def anchors_command(
    config: Annotated[_File, typer.Argument(help="TOML file of a run; flags override it.")] = None,
    candidates: Annotated[
        _Number, _theorem("N: number of candidates of all clients and tasks.")
    ] = None,
    tasks: Annotated[
        _Number, _theorem("T: number of tasks; N = clients × tasks × list size.")
    ] = None,
    hit: Annotated[_Share, _theorem("p: share of anchors that separate a pair.")] = None,
    failure: Annotated[
        float, typer.Option(help="η: allowed probability that some pair is not separated.")
    ] = 0.05,
    clients: Annotated[_Number, typer.Option(help="Number of clients.")] = None,
    list_size: Annotated[_Number, typer.Option(help="L: candidates per list.")] = None,
    anchor_count: Annotated[_Number, typer.Option(help="m: number of anchors to evaluate.")] = None,
    stream: Annotated[_Text, _stream("Stream name, as for `cslr run`.")] = None,
    data: Annotated[_File, _stream("Directory of data sets.")] = None,
    rows: Annotated[_Text, _stream("Rows to use: subset, all or held-out.")] = None,
    scenario: Annotated[_Text, _stream("Scenario: class, domain or task.")] = None,
    alpha: Annotated[
        _Share, _stream("Dirichlet concentration of the partition of rows over clients.")
    ] = None,
    prior: Annotated[
        _Text, _stream("Prior of the released modes: labels (made of label texts) or none.")
    ] = None,
    dimension: Annotated[_Number, _stream("r: number of released directions.")] = None,
    sub_modes: Annotated[_Number, _stream("J: modes per label.")] = None,
    encoder: Annotated[_Text, _stream("minilm, mpnet, a local directory, or a hub name.")] = None,
    seed: Annotated[_Number, _stream("Seed of the partition and the anchors.")] = None,
    margin: Annotated[_Share, _stream("γ: margin, in standard deviations of a signature.")] = None,
    sweep: Annotated[_Text, _stream("Anchor counts to try, e.g. 10,50,200.")] = None,
    encoders: Annotated[
        _Text, _compared("Two or more encoders to compare, e.g. minilm,mpnet.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Compute how many anchors separate the candidates: by Theorem 2, or measured on a stream.

    With --candidates (or --clients, --tasks, --list-size) and --hit the theorem is applied and no
    data are read. With --stream the hit rate and the margins of simulated clients' lists are
    measured, and how well the public sentences cover the clients' texts. That reads lists without
    noise, so it is for studies only and is refused for your own data. With --encoders only public
    sentences and label texts are read, to estimate how well clients with these encoders can share
    a replay.

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
        "seeds": None if seed is None else [seed],
    }
    of_stream = {
        "--margin": margin,
        "--sweep": sweep,
        **{_flag(k): v for k, v in about_stream.items()},
    }
    of_theorem = {"--candidates": candidates, "--tasks": tasks, "--hit": hit}
    from cslr.config import load_config

    counts = None if sweep is None else _counts(sweep)
    if encoders is not None:
        lists = {"--clients": clients, "--list-size": list_size, "--anchor-count": anchor_count}
        others = {_flag(k): v for k, v in about_stream.items() if k not in _OF_ENCODERS}
        _refuse(
            {**of_theorem, **lists, "--margin": margin, **others},
            "cannot be combined with --encoders; remove one of them",
        )
        given = {name: value for name, value in about_stream.items() if value is not None}
        _compare(load_config(config, given), encoders, counts, as_json)
        return
    if config is None and stream is None and data is None:
        _refuse(of_stream, "requires --stream")
        _prescribe(
            _count(candidates, clients, tasks, list_size), hit, failure, anchor_count, as_json
        )
        return
    _refuse(
        of_theorem,
        "cannot be combined with a stream, whose candidates and hit rate are measured; remove it",
    )
    about_stream |= {
        "stream.clients": clients,
        "paper.list_size": list_size,
        "paper.m": anchor_count,
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
    """N as given, or as Theorem 2 counts it: Σ_t |C_t| L."""
    given = (clients, tasks, size)
    if candidates is not None:
        if any(number is not None for number in given):
            raise ConfigError("--candidates is N; remove --clients, --tasks and --list-size")
        return _positive("--candidates", candidates)
    if clients is None or tasks is None:
        raise ConfigError(
            "the number of candidates is required: give --candidates, or --clients, --tasks "
            "and --list-size; or --stream, to measure on a stream"
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
        raise ConfigError(f"--sweep must be comma-separated whole numbers, not {text!r}") from None


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
            "--hit is required: the share of public sentences that separate a pair; `cslr "
            "anchors --stream NAME` measures it"
        )
    if not 0 < hit <= 1:
        raise ConfigError(f"--hit must lie in (0, 1], not {hit:g}")
    prescription = prescribe(candidates, hit, _share("--failure", failure))
    guarantee = None
    if anchors is not None:
        count = _positive("--anchor-count", anchors)
        guarantee = (count, failure_bound(candidates, hit, count))
    if as_json:
        typer.echo(json.dumps(prescription_json(prescription, guarantee)))
    else:
        print_prescription(prescription, guarantee, Console())


def _examine(
    config: Config, margin: float | None, failure: float, counts: list[int] | None, as_json: bool
) -> None:
    from rich.console import Console

    from cslr.cli.show.theory import examined_json, print_examined
    from cslr.research.theory.anchors import MARGIN, examine
    from cslr.runs.embedded import is_own, load_embedded

    if is_own(config.stream) or config.privacy.mode == "enforced":
        raise ConfigError(
            "cslr anchors reads lists without noise, which is not allowed on your own data "
            "or with enforced privacy: measure on a public stream (--stream), or apply the "
            "theorem with --candidates and --hit"
        )
    if margin is not None and not margin > 0:
        raise ConfigError(f"--margin must be positive, not {margin:g}")
    embedded = load_embedded(config, progress=True)
    examined = examine(config, embedded, MARGIN if margin is None else margin, failure, counts)
    if as_json:
        typer.echo(json.dumps(examined_json(examined)))
    else:
        print_examined(examined, Console())


def _compare(config: Config, encoders: str, counts: list[int] | None, as_json: bool) -> None:
    from rich.console import Console

    from cslr.cli.show.theory import compared_json, print_compared
    from cslr.research.theory.encoder_comparison import compare

    names = [name.strip() for name in encoders.split(",")]
    compared = compare(config, names, counts, progress=True)
    if as_json:
        typer.echo(json.dumps(compared_json(compared)))
    else:
        print_compared(compared, Console())


def quality_command(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Directory of a finished run.")],
    samples: Annotated[
        int, typer.Option(min=20, help="Maximum number of rows per task, and of replay samples.")
    ] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Compare a run's replay with test rows of its tasks, next to the forgetting of each task.

    Theorem 5 bounds forgetting by the distance between the two. Reads the replay of a finished run
    and the test rows of its stream without noise: for studies only. Nothing is written.

    Example: `cslr quality runs/my-run`
    """
    from rich.console import Console

    from cslr.cli.show.theory import print_retention
    from cslr.research.theory.kept import load_run
    from cslr.research.theory.retention import retention
    from cslr.runs.embedded import load_embedded

    kept = load_run(run)
    measured = retention(kept, load_embedded(kept.config, progress=True), samples)
    if as_json:
        typer.echo(json.dumps(measured.as_json()))
    else:
        print_retention(measured, Console())
