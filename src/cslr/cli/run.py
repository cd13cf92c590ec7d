"""``cslr run`` and ``cslr upgrade``."""

from __future__ import annotations

import ctypes
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console

from cslr.errors import ConfigError

if TYPE_CHECKING:
    from cslr.config import Config
    from cslr.runs.embedded import EmbeddedStream, SettledConfig
    from cslr.runs.results import Result

__all__ = ["keep_freed_memory", "run_command", "upgrade_command"]

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""The numbers of two settings of glibc's ``mallopt``."""
_KEPT: Final = 1 << 30
"""Bytes of freed memory that glibc keeps."""


def _first(help: str, *flags: str) -> Any:
    """A flag that a user needs first."""
    return typer.Option(*flags, help=help)


def _more(help: str, *flags: str, least: float | None = None) -> Any:
    """Any other flag, listed under "More"."""
    return typer.Option(*flags, help=help, min=least, rich_help_panel="More")


_Text: TypeAlias = str | None
_Number: TypeAlias = int | None
_Share: TypeAlias = float | None
_File: TypeAlias = Path | None


def run_command(
    config: Annotated[_File, typer.Argument(help="TOML file; flags override it.")] = None,
    data: Annotated[_File, _first("Directory of data sets, or a file of your own rows.")] = None,
    stream: Annotated[
        _Text,
        _first(
            "Embedded: clinic, desk, ward. From --data DIR: ag-news, ag-news-pairs (both also with "
            "-small), amazon, amazon-products, multiwoz, multiwoz-services, ner, ontonotes."
        ),
    ] = None,
    method: Annotated[
        _Text,
        _first(
            "cslr; cslr-paper; with another matcher cslr-noanchor, -nearestmean, -hungarian, "
            "-optimaltransport; dp-sgd, dp-stat-share, dp-class-stats, dp-joint, fedcil, fedta; "
            "majority, zero-shot, finetune, joint."
        ),
    ] = None,
    encoder: Annotated[
        _Text,
        _first(
            "minilm, mpnet, a local directory, or a hub name; minilm+onnx runs in ONNX Runtime; "
            "for tagging minilm+layer-2 takes word vectors from hidden layer -2."
        ),
    ] = None,
    epsilon: Annotated[
        _Share, _first(r"End-to-end ε of this run; inf adds no noise. \[8; own data: declared]")
    ] = None,
    privacy: Annotated[_Text, _first("simulated or enforced; own data: always enforced.")] = None,
    clients: Annotated[_Number, _first("Number of registered clients N.")] = None,
    seeds: Annotated[_Text, _first("Comma-separated, e.g. 13,17,19.")] = None,
    run_dir: Annotated[
        _File, _first("Run directory; an interrupted run with the same settings is resumed.")
    ] = None,
    as_json: Annotated[bool, _first("Print one JSON object instead.", "--json")] = False,
    rows: Annotated[_Text, _more("Rows to use: subset, all or held-out (for tuning).")] = None,
    scenario: Annotated[_Text, _more("Scenario: class, domain or task.")] = None,
    alpha: Annotated[
        _Share, _more("Dirichlet concentration of the partition of rows over clients.")
    ] = None,
    min_rows: Annotated[
        _Number, _more("Minimum number of rows per client, where rows have no people.")
    ] = None,
    declaration: Annotated[
        _File, _more(r"Public declaration of the rows. \[FILE's name with .cslr.toml]")
    ] = None,
    anchors: Annotated[
        _File, _more(r"Public sentences, one per line. \[`public` in the declaration]")
    ] = None,
    skip_bad_rows: Annotated[
        bool | None, _more("Leave out rows that violate the declaration.", "--skip-bad-rows")
    ] = None,
    delta: Annotated[_Share, _more(r"δ of the guarantee. \[1e-5; own data: declared]")] = None,
    adversary: Annotated[_Text, _more("Adversary that ε holds against: roster or public.")] = None,
    participation: Annotated[
        _Share, _more("Participation rate q in (0, 1].", "--participation", "--q")
    ] = None,
    cap: Annotated[
        _Number,
        _more(r"Most tasks that a unit contributes to. \[client: all; person: those it has]"),
    ] = None,
    unit: Annotated[
        _Text,
        _more(
            r"Unit of privacy: client or person. \[client; own data: declared; embedded streams: "
            "person]"
        ),
    ] = None,
    federation: Annotated[
        _File,
        _more("Enforced privacy: directory of the ledger that all runs on the same rows share."),
    ] = None,
    evaluate: Annotated[
        _Text,
        _more(
            "Scores on test rows. shown: exact, printed but not stored. stored: exact, also "
            "written to the run directory; not covered by ε if test rows belong to clients. "
            r"private: one noisy count, charged within ε. none: not computed. \[enforced: "
            "shown; simulated, or test rows declared public: stored]"
        ),
    ] = None,
    prior: Annotated[
        _Text, _more("Prior of the released modes: labels (made of label texts) or none.")
    ] = None,
    dimension: Annotated[_Number, _more("r: number of released directions.")] = None,
    anchor_count: Annotated[
        _Number, _more("m: number of public sentences used as anchors.", least=2)
    ] = None,
    sub_modes: Annotated[_Number, _more("J: modes per label.")] = None,
    list_size: Annotated[_Number, _more("L: candidates per list.")] = None,
    matcher: Annotated[
        _Text, _more("Matcher: signature, nearest-mean, hungarian, optimal-transport or random.")
    ] = None,
    head: Annotated[
        _Text,
        _more("Head training: released, rounds, dp-fedavg or federated (end-to-end ε = ∞)."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        _more("Any other setting, e.g. --set replay.release=list; repeatable.", "--set"),
    ] = None,
    yardsticks: Annotated[
        bool | None, _more("Also run majority, zero-shot, finetune and joint.")
    ] = None,
    until: Annotated[
        _Number, _more("Stop after this many tasks; resume later with --run-dir.")
    ] = None,
    quiet: Annotated[
        bool, _more("Print no progress, and of the result only the verdict.", "--quiet", "-q")
    ] = False,
) -> None:
    """Train on a sequence of text tasks with differential privacy and show the scores.

    Without arguments it uses the embedded stream clinic: patients' messages to four clinics.
    The run directory contains config, trace, ledger, releases, replay, head and plot.

    Example: `cslr run --stream ag-news --data DIR --epsilon 4 --seeds 13,17,19,23,29`

    Your own data: `cslr data init my.csv`, then `cslr run --data my.csv`
    """
    given: dict[str, Any] = {
        "stream.name": stream,
        "stream.data": data,
        "stream.declaration": declaration,
        "stream.public": anchors,
        "stream.rows": "valid" if skip_bad_rows and rows is None else rows,
        "stream.scenario": scenario,
        "stream.clients": clients,
        "stream.alpha": alpha,
        "stream.min_rows": min_rows,
        "privacy.epsilon": epsilon,
        "privacy.delta": delta,
        "privacy.adversary": adversary,
        "privacy.participation": participation,
        "privacy.cap": cap,
        "privacy.unit": unit,
        "privacy.mode": privacy,
        "privacy.federation": federation,
        "privacy.evaluate": evaluate,
        "replay.prior": prior,
        "replay.dimension": dimension,
        "paper.m": anchor_count,
        "replay.sub_modes": sub_modes,
        "paper.list_size": list_size,
        "replay.matcher": matcher,
        "head.kind": head,
        "method": method,
        "encoder": encoder,
        "seeds": None if seeds is None else _seeds(seeds),
        "yardsticks": yardsticks,
        **_settings(setting or []),
    }
    from cslr.config import load_config
    from cslr.runs.embedded import settle
    from cslr.runs.learn import usual_unit

    if until is not None and until < 1:
        raise ConfigError(f"--until must be at least 1 task, not {until}")
    named = {name: value for name, value in given.items() if value is not None}
    chosen = load_config(config, named)
    proposed = "unit" not in chosen.privacy.model_fields_set and usual_unit(chosen) == "person"
    if proposed:
        chosen = load_config(config, {**named, "privacy.unit": "person"})
    _run(settle(chosen), run_dir, as_json, quiet, until, compare=proposed)


def upgrade_command(
    run: Annotated[Path, typer.Argument(help="A run directory, finished or not.")],
    encoder: Annotated[str, typer.Option(help="Encoder for the remaining tasks.")],
    run_dir: Annotated[_File, _first("New run directory; the old run is not changed.")] = None,
    as_json: Annotated[bool, _first("Print one JSON object instead.", "--json")] = False,
    quiet: Annotated[
        bool, _more("Print no progress, and of the result only the verdict.", "--quiet", "-q")
    ] = False,
) -> None:
    """Continue a run with another encoder.

    Earlier releases are carried over by a map between the two encoders, fitted on public sentences,
    at no privacy cost, and the head is trained again; the remaining tasks are released with the new
    encoder, within the same plan. The row of the score matrix after the last old task shows what
    was lost. The ledger records the change.

    Example: `cslr run --until 2 --run-dir runs/old`, then `cslr upgrade runs/old --encoder mpnet`
    """
    from cslr.runs.embedded import settle
    from cslr.runs.upgrade import begin_upgrade, upgraded_config

    settled = settle(upgraded_config(run, encoder))
    target = run_dir or run.with_name(f"{run.name}-{settled.given.digest()[:6]}")
    begin_upgrade(run, settled.given, target)
    _run(settled, target, as_json, quiet)


def _settings(texts: list[str]) -> dict[str, Any]:
    """``name=value`` as in a TOML file; a word needs no quotes."""
    import tomllib

    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(
                f"--set must be NAME=VALUE, such as replay.release=list, not {text!r}"
            )
        try:
            settings[name.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            settings[name.strip()] = value.strip()
    return settings


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds must be comma-separated whole numbers, not {text!r}") from None


def _new_run_dir(config: Config) -> Path:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{stamp}-{config.stream.name}-{config.method}-{config.digest()[:6]}"


def _run(
    settled: SettledConfig,
    path: Path | None,
    as_json: bool,
    quiet: bool = False,
    until: int | None = None,
    compare: bool = False,
) -> None:
    """Train, store and show; compare: also measure with a client as the unit, in a simulation."""
    from cslr.cli.show.run import steps
    from cslr.runs.directory import RunDirectory
    from cslr.runs.embedded import load_embedded
    from cslr.runs.learn import learn, run

    keep_freed_memory()
    config = settled.given
    path = path or _new_run_dir(config)
    directory = RunDirectory(path, config)
    errors = Console(stderr=True)
    try:
        if not quiet:
            _note(errors, f"Reading {config.stream.name} and its embeddings ...")
        # A log would store private facts: how many texts are encoded, and how long steps take.
        quiet_log = config.privacy.mode == "enforced" and not errors.is_terminal
        embedded = load_embedded(settled, progress=not quiet and not quiet_log)
        for notice in (*embedded.notices, *_warnings(config, embedded)):
            _note(errors, notice)
        with steps(errors, quiet, timed=not quiet_log) as on_step:
            if until is not None and until < len(embedded.stream.tasks):
                learn(settled, embedded, directory, on_step, until)
                _note(errors, f"Stopped after {until} tasks. {_resume(path)}")
                return
            result = run(settled, embedded, directory, on_step)
    except KeyboardInterrupt:
        _note(errors, f"\nInterrupted. {_resume(path)}")
        raise typer.Exit(130) from None
    _store(result, path, embedded)
    if as_json:
        typer.echo(json.dumps(result.as_json()))
        return
    compare = compare and result.evaluated and config.privacy.mode == "simulated"
    _show(result, settled, embedded, quiet=quiet, compare=compare)


def _warnings(config: Config, embedded: EmbeddedStream) -> list[str]:
    """Warnings before a run: few public sentences, or weak privacy parameters."""
    from cslr.privacy.plan import promise_warnings
    from cslr.runs.embedded import is_own
    from cslr.runs.learn import units_of
    from cslr.runs.own_data import public_warning

    privacy, units = config.privacy, units_of(config, embedded.stream)
    few = None
    if is_own(config.stream):
        stream, dimension = embedded.stream, embedded.public.shape[1]
        few = public_warning(config, stream.public, dimension, stream.family)
    weak = promise_warnings(privacy.epsilon, privacy.delta, units, privacy.unit)
    return [*([few] if few else []), *[f"warning: {text}" for text in weak]]


def _store(result: Result, path: Path, embedded: EmbeddedStream) -> None:
    """Write the result, plots and report of a finished run into its directory."""
    from cslr.files import write_atomic
    from cslr.report.charts import plot_accuracy
    from cslr.report.run_facts import save_clouds
    from cslr.report.run_report import write_report

    stored = json.dumps(result.stored_json(), indent=2)
    write_atomic(path / "result.json", stored.encode() + b"\n")
    if result.evaluated and result.rule == "stored":
        plot_accuracy(result, path / "accuracy.png")
    save_clouds(path, result.config, embedded)
    write_report([path], path / "report.html")


def _show(
    result: Result, settled: SettledConfig, embedded: EmbeddedStream, *, quiet: bool, compare: bool
) -> None:
    """Print a result: one line if quiet, else all of it, compared with the other unit if wanted."""
    from cslr.cli.show.run import print_next, print_other_unit, print_summary, print_verdict
    from cslr.runs.learn import with_unit

    if quiet:
        print_verdict(result, Console())
        return
    print_summary(result, Console())
    if compare:
        _note(Console(stderr=True), "Measuring the same with --unit client, to compare ...")
        print_other_unit(result, with_unit(settled, embedded, "client"), Console())
    print_next(result, Console())


def _note(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _resume(path: Path) -> str:
    return f"To resume, repeat the command with --run-dir {path}."


def keep_freed_memory() -> None:
    """Make glibc keep up to a gigabyte of freed memory for the next array.

    By default it returns large blocks to the kernel at once, and the kernel clears the pages of the
    next array: a tenth of a run's time. Peak memory hardly grows. Without glibc nothing is changed.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(_MMAP_THRESHOLD, _KEPT)
    mallopt(_TRIM_THRESHOLD, _KEPT)
