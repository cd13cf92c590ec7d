"""The program: one short function per verb."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.console import Console
from rich.table import Table

# Small matrices: a second BLAS thread mostly waits for the first, and torch has its own.
# Set before NumPy is loaded, which no import of this module does.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from cslr import __version__
from cslr.config import Config, load_config
from cslr.errors import ConfigError, CslrError

__all__ = ["app", "main"]

app = typer.Typer(
    name="cslr",
    help="Private federated continual learning over text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cslr {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command("run")
def run_command(
    config: Annotated[Path | None, typer.Argument(help="TOML file; flags win over it.")] = None,
    stream: Annotated[str | None, typer.Option(help="clinic (embedded), ag-news, amazon.")] = None,
    data: Annotated[Path | None, typer.Option(help="Directory of the data sets.")] = None,
    rows: Annotated[str | None, typer.Option(help="subset, all or held-out (for tuning).")] = None,
    method: Annotated[
        str | None, typer.Option(help="cslr, majority, zero-shot, finetune or joint.")
    ] = None,
    scenario: Annotated[str | None, typer.Option(help="class, domain or task.")] = None,
    clients: Annotated[int | None, typer.Option(help="Registered clients N.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Dirichlet concentration.")] = None,
    min_rows: Annotated[int | None, typer.Option(help="Fewest rows a client may hold.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="End-to-end ε; inf adds no noise.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ.")] = None,
    adversary: Annotated[str | None, typer.Option(help="roster or public.")] = None,
    participation: Annotated[
        float | None, typer.Option("--participation", "--q", help="q in (0, 1].")
    ] = None,
    cap: Annotated[int | None, typer.Option(help="Most tasks a client contributes to.")] = None,
    privacy: Annotated[str | None, typer.Option(help="simulated or enforced.")] = None,
    federation: Annotated[
        Path | None, typer.Option(help="Directory of the federation's ledger (enforced).")
    ] = None,
    prior: Annotated[str | None, typer.Option(help="labels or none.")] = None,
    dimension: Annotated[int | None, typer.Option(help="r: released directions.")] = None,
    anchors: Annotated[int | None, typer.Option(help="m: public anchors.")] = None,
    sub_modes: Annotated[int | None, typer.Option(help="J: modes per label.")] = None,
    list_size: Annotated[int | None, typer.Option(help="L: candidates per list.")] = None,
    matcher: Annotated[
        str | None,
        typer.Option(help="signature, nearest-mean, hungarian, optimal-transport or random."),
    ] = None,
    second_moments: Annotated[str | None, typer.Option(help="shared or diagonal.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="minilm, a local directory, or a hub name.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Comma-separated, e.g. 13,17,19.")] = None,
    yardsticks: Annotated[
        bool | None, typer.Option(help="Also run majority, zero-shot, finetune and joint.")
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Where to write; an interrupted run of the same settings goes on there."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Learn a sequence of text tasks privately and show what is remembered.

    With no argument at all, the embedded stream: patients' messages to four clinics.
    A run directory holds config, trace, ledger, releases, replay, head and plot.

    Example: `cslr run --stream ag-news --data DIR --epsilon 4 --seeds 13,17,19,23,29`
    """
    given: dict[str, Any] = {
        "stream.name": stream,
        "stream.data": data,
        "stream.rows": rows,
        "stream.scenario": scenario,
        "stream.clients": clients,
        "stream.alpha": alpha,
        "stream.min_rows": min_rows,
        "privacy.epsilon": epsilon,
        "privacy.delta": delta,
        "privacy.adversary": adversary,
        "privacy.participation": participation,
        "privacy.cap": cap,
        "privacy.mode": privacy,
        "privacy.federation": federation,
        "replay.prior": prior,
        "replay.dimension": dimension,
        "replay.anchors": anchors,
        "replay.sub_modes": sub_modes,
        "replay.list_size": list_size,
        "replay.matcher": matcher,
        "replay.second_moments": second_moments,
        "method": method,
        "encoder": encoder,
        "seeds": None if seeds is None else _seeds(seeds),
        "yardsticks": yardsticks,
    }
    settings = load_config(
        config, {name: value for name, value in given.items() if value is not None}
    )
    _run(settings, run_dir or _new_run_dir(settings), as_json)


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds takes whole numbers with commas, not {text!r}") from None


def _new_run_dir(config: Config) -> Path:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{stamp}-{config.stream.name}-{config.method}-{config.digest()[:6]}"


def _run(config: Config, path: Path, as_json: bool) -> None:
    from cslr.bench.rundir import RunDirectory
    from cslr.bench.runner import run
    from cslr.bench.study import load_study
    from cslr.files import write_atomic
    from cslr.report.plot import plot_accuracy
    from cslr.report.summary import print_summary

    directory = RunDirectory(path, config)
    errors = Console(stderr=True)
    try:
        study = load_study(config, progress=True)
        with _steps(errors) as on_step:
            result = run(config, study, directory, on_step)
    except KeyboardInterrupt:
        errors.print(f"\nInterrupted. The same command with --run-dir {path} goes on from here.")
        raise typer.Exit(130) from None
    plain = result.as_json()
    write_atomic(path / "result.json", json.dumps(plain, indent=2).encode() + b"\n")
    plot_accuracy(result, path / "accuracy.png")
    if as_json:
        typer.echo(json.dumps(plain))
    else:
        print_summary(result, Console())


@contextmanager
def _steps(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar that is told of every step."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()]
    with Progress(*columns, TextColumn("{task.description}"), console=console) as bar:
        job = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(
            job, description=what, completed=done, total=total
        )


@app.command("plan")
def plan_command(
    epsilon: Annotated[float, typer.Option(help="Target ε.")] = 4.0,
    delta: Annotated[float, typer.Option(help="δ.")] = 1e-5,
    clients: Annotated[int, typer.Option(min=1, help="Registered clients N.")] = 20,
    tasks: Annotated[int, typer.Option(help="Releases: one per task.")] = 4,
    cap: Annotated[int | None, typer.Option(help="Most tasks a client contributes to.")] = None,
    participation: Annotated[
        float, typer.Option("--participation", "--q", help="q in (0, 1].")
    ] = 1.0,
    adversary: Annotated[
        str, typer.Option(help="Whom the target holds against: roster or public.")
    ] = "roster",
    dimension: Annotated[int, typer.Option(min=1, help="r: released directions.")] = 128,
    modes: Annotated[int, typer.Option(min=1, help="Modes released per task.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """From a promise to its noise: σ, what it costs, and whether it is worth starting.

    Nothing is read and nothing is spent.

    Example: `cslr plan --epsilon 4 --clients 100 --tasks 6 --cap 1`
    """
    from cslr.privacy.accounting import ADVERSARIES
    from cslr.privacy.plan import Budget, calibrate, forecast

    budget = Budget(epsilon, delta, adversary)  # type: ignore[arg-type]
    plan = calibrate(budget, tasks, participation, cap)
    outlook = forecast(plan, clients, dimension * modes)
    costs = {who: plan.epsilon(who) for who in ADVERSARIES}
    if as_json:
        finite = {who: cost if math.isfinite(cost) else None for who, cost in costs.items()}
        typer.echo(
            json.dumps(
                {
                    "sigma": plan.sigma,
                    "releases": tasks,
                    "cap": plan.cap,
                    "delta": delta,
                    "unit": "client",
                    "epsilon": {"replay": finite, "end_to_end": finite},
                    "signal_to_noise": outlook.signal_to_noise
                    if math.isfinite(outlook.signal_to_noise)
                    else None,
                    "advice": outlook.advice,
                }
            )
        )
        return
    console = Console()
    sigma = "none" if plan.sigma is None else f"{plan.sigma:.4g}"
    console.print(
        f"\nNoise multiplier [bold]σ = {sigma}[/bold] for each of {tasks} releases, "
        f"of which a client contributes to at most {plan.cap}."
    )
    table = Table(title=f"What that costs a client at δ = {delta:g}", title_justify="left")
    table.add_column("scope")
    for who in costs:
        table.add_column(who, justify="right")
    # The head learns from the released replay alone, so both scopes cost the same.
    for scope in ("replay", "end to end (head on released replay)"):
        table.add_row(scope, *[_epsilon(cost) for cost in costs.values()])
    console.print(table)
    console.print(f"Signal to noise of a task's modes: [bold]{outlook.signal_to_noise:.2g}[/bold]")
    console.print(outlook.advice)


@app.command("ledger")
def ledger_command(
    path: Annotated[Path, typer.Argument(help="A ledger file, a run or a federation directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """What was spent, on what, and what is left. Reads only; checks the chain.

    Example: `cslr ledger runs/my-run`
    """
    from cslr.report.ledger import ledger_report, print_ledger

    files = _ledgers(path)
    reports = [ledger_report(file) for file in files]
    if as_json:
        typer.echo(json.dumps(reports))
        return
    for report in reports:
        print_ledger(report, Console())


def _ledgers(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted([*path.glob("ledger.jsonl"), *path.glob("seed-*/ledger.jsonl")])
    if not found:
        raise ConfigError(f"there is no ledger at {path}; give a run or federation directory")
    return found


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.4g}"


def main() -> None:
    """The entry point: a user's mistake is a message and exit code 2, never a traceback."""
    try:
        code = app(standalone_mode=False)
    except CslrError as error:
        Console(stderr=True).print(f"[bold red]error:[/bold red] {error}", highlight=False)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(code or 0)


if __name__ == "__main__":
    main()
