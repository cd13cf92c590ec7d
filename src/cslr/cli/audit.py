"""``cslr audit``: empirical lower bounds on ε by attacking a plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console

from cslr.errors import ConfigError

if TYPE_CHECKING:
    from cslr.audit.confidence import Bound
    from cslr.audit.plans import Audited

__all__ = ["REFUTED", "audit_command"]

REFUTED: Final = 3
"""Exit code if a lower bound exceeds the claimed ε."""
_WHAT: Final = ("both", "mechanism", "pipeline")
_TASKS, _LABELS, _CLIENTS, _EPSILON = 4, 4, 20, 4.0
"""Defaults of a plan that is given by flags alone."""

_Number: TypeAlias = int | None
_Share: TypeAlias = float | None
_Text: TypeAlias = str | None
_File: TypeAlias = Path | None
_OnStep: TypeAlias = Callable[[str, int, int], None]


def _plan(help: str, *flags: str) -> Any:
    return typer.Option(*flags, help=help, rich_help_panel="The plan")


def _attack(help: str, *flags: str) -> Any:
    return typer.Option(*flags, help=help, rich_help_panel="The attack")


def audit_command(
    config: Annotated[_File, typer.Argument(help="TOML file of a run; flags override it.")] = None,
    ledger: Annotated[
        _File,
        _plan("Audit the plan fixed in a ledger: a ledger file, run or federation directory."),
    ] = None,
    epsilon: Annotated[_Share, _plan(r"ε of the plan. \[4]")] = None,
    delta: Annotated[_Share, _plan(r"δ of the plan. \[1e-5]")] = None,
    adversary: Annotated[_Text, _plan("Adversary that ε holds against: roster or public.")] = None,
    unit: Annotated[_Text, _plan(r"Unit of privacy: client or person. \[client]")] = None,
    clients: Annotated[_Number, _plan(r"Honest clients besides the canaries. \[20]")] = None,
    people: Annotated[
        _Number, _plan("Honest people besides the canaries, with --unit person.")
    ] = None,
    tasks: Annotated[_Number, _plan(r"Tasks; each is one release. \[4]")] = None,
    labels: Annotated[_Number, _plan(r"Labels per task. \[4]")] = None,
    cap: Annotated[
        _Number, _plan(r"Maximum number of tasks a client contributes to. \[all]")
    ] = None,
    participation: Annotated[
        _Share, _plan(r"Participation rate q in (0, 1]. \[1]", "--participation", "--q")
    ] = None,
    dimension: Annotated[_Number, _plan(r"r: number of released directions. \[384]")] = None,
    what: Annotated[_Text, _attack(r"mechanism, pipeline or both. \[both]")] = None,
    runs: Annotated[
        int, _attack("Mechanism: number of runs with the attacked client, and as many without.")
    ] = 10_000,
    canaries: Annotated[
        _Number,
        _attack(r"Pipeline: number of canaries. \[1000, or fewer if there are fewer coordinates]"),
    ] = None,
    confidence: Annotated[
        _Share, _attack(r"Confidence of each lower bound. \[0.999 mechanism, 0.95 pipeline]")
    ] = None,
    seed: Annotated[int, _attack("Seed of coins, directions and noise.")] = 13,
    out: Annotated[_File, typer.Option(help="Directory for audit.json and audit.png.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Attack a plan and report empirical lower bounds on its ε.

    Mechanism: thousands of runs with and without one client whose vector is at the clip; the lower
    bound should come close to the claimed ε. Pipeline: one run of the whole protocol with canaries
    (artificial clients, or people if a person is the unit of privacy; a coin decides whether each
    is included); this lower bound is looser.

    A lower bound above the claimed ε means that the guarantee is violated: exit code 3.

    The audit uses synthetic data. No row is read and no budget is spent.

    Example: `cslr audit --epsilon 4 --tasks 6 --cap 1 --out audit`

    Example: `cslr audit --ledger runs/my-run --what mechanism`
    """
    from cslr.cli.show.run import steps

    attacks = what or "both"
    if attacks not in _WHAT:
        raise ConfigError(f"--what must be one of {', '.join(_WHAT)}, not {attacks!r}")
    _check(runs, canaries, confidence)
    given: dict[str, Any] = {
        "privacy.unit": unit,
        "privacy.epsilon": epsilon,
        "privacy.delta": delta,
        "privacy.adversary": adversary,
        "privacy.participation": participation,
        "privacy.cap": cap,
        "stream.clients": clients,
        "replay.dimension": dimension,
    }
    given = {name: value for name, value in given.items() if value is not None}
    audited = _audited(config, ledger, given, tasks, labels)
    if people is not None and audited.plan.budget.unit != "person":
        raise ConfigError("--people goes with --unit person; add it, or remove --people")
    if people is not None:
        audited = replace(audited, clients=people)
    with steps(Console(stderr=True)) as on_step:
        bounds = _attacked(audited, attacks, runs, canaries, confidence, seed, on_step)
    _report(audited, bounds, seed, out, as_json)
    if not all(bound.holds for bound in bounds):
        raise typer.Exit(REFUTED)


def _check(runs: int, canaries: int | None, confidence: float | None) -> None:
    if runs < 1:
        raise ConfigError(f"--runs must be at least 1, not {runs}")
    if canaries is not None and canaries < 2:
        raise ConfigError(f"--canaries must be at least 2, not {canaries}")
    if confidence is not None and not 0 < confidence < 1:
        raise ConfigError(f"--confidence must lie strictly between 0 and 1, not {confidence:g}")


def _audited(
    path: Path | None,
    ledger: Path | None,
    given: dict[str, Any],
    tasks: int | None,
    labels: int | None,
) -> Audited:
    """The plan from flags, a configuration or a ledger."""
    from cslr.audit.plans import Shape, plan_of_config, plan_of_ledger, shape_of_stream
    from cslr.config import load_config
    from cslr.runs.directory import ledgers_of
    from cslr.runs.embedded import SettledConfig

    for flag, number in (("--tasks", tasks), ("--labels", labels)):
        if number is not None and number < 1:
            raise ConfigError(f"{flag} must be at least 1, not {number}")
    if ledger is not None:
        if path is not None or given or tasks or labels:
            raise ConfigError(
                "--ledger cannot be combined with settings of a plan: the ledger's plan is "
                "fixed. Remove the other options and the TOML file"
            )
        return plan_of_ledger(ledgers_of(ledger)[0])
    if path is None:
        config = load_config(None, {"privacy.epsilon": _EPSILON, **given})
        shape = Shape(tasks or _TASKS, labels or _LABELS, _CLIENTS)
        return replace(plan_of_config(SettledConfig.of(config), shape), name="this plan")
    settled, shape = shape_of_stream(load_config(path, given))
    shape = replace(shape, tasks=tasks or shape.tasks, labels=labels or shape.labels)
    return plan_of_config(settled, shape)


def _attacked(
    audited: Audited,
    what: str,
    runs: int,
    canaries: int | None,
    confidence: float | None,
    seed: int,
    on_step: _OnStep,
) -> list[Bound]:
    from cslr.audit import one_run, synthetic_context, two_worlds
    from cslr.seeding import Seeds

    more: dict[str, Any] = {} if confidence is None else {"confidence": confidence}
    seeds, bounds = Seeds(seed), []
    if what == "pipeline" and not audited.one_sum:
        raise ConfigError(
            "--what pipeline requires a plan with one sum per task; use --what mechanism, "
            "which audits any plan"
        )
    if what != "mechanism" and audited.one_sum:
        numbers = (audited.clients, audited.labels, audited.dimension)
        context = synthetic_context(
            audited.plan, *numbers, seeds.under("pipeline"), audited.clients_per_person
        )
        outcome = one_run(context, canaries, on_step=on_step, **more)
        bounds += [outcome.white, outcome.black]
    if what != "pipeline":
        worlds = seeds.under("mechanism")

        def counted(done: int, total: int) -> None:
            on_step("runs of both worlds", done, total)

        bounds.insert(0, two_worlds(audited.plan, runs, worlds, on_run=counted, **more))
    return bounds


def _report(
    audited: Audited, bounds: list[Bound], seed: int, out: Path | None, as_json: bool
) -> None:
    from cslr.cli.show.audit import audit_json, print_audit
    from cslr.files import write_atomic
    from cslr.report.audit_plot import plot_audit

    plain = audit_json(audited, bounds, seed)
    if out is not None:
        write_atomic(out / "audit.json", json.dumps(plain, indent=2).encode() + b"\n")
        plot_audit(audited, bounds, out / "audit.png")
    if as_json:
        typer.echo(json.dumps(plain))
    else:
        print_audit(audited, bounds, Console())
