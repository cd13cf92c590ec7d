"""Continue a run with another encoder: its releases are carried over at no cost.

A new run directory gets the releases and the ledger of the old one, so that nothing is charged
twice and the old run stays as it was. Where privacy is enforced both use the federation's ledger.
"""

from __future__ import annotations

from pathlib import Path

from cslr.config import Config, with_settings
from cslr.errors import ConfigError
from cslr.methods.registry import method_named
from cslr.privacy.ledger.book import Ledger
from cslr.runs.directory import RunDirectory, ledgers_of, read_config, read_trace

__all__ = ["begin_upgrade", "upgraded_config"]


def upgraded_config(run: Path, encoder: str) -> Config:
    """The configuration of the run at ``run``, from its last released task on with ``encoder``."""
    config = read_config(run)
    if config.upgrade:
        raise ConfigError(f"{run} was upgraded already; a run can be upgraded once")
    if config.encoder == encoder:
        raise ConfigError(f"{run} already uses the encoder {encoder}")
    if not method_named(config.method).carries:
        raise ConfigError(
            f"{run} is a run of {config.method}, which has no releases to carry over; use a run "
            "of cslr"
        )
    released = {_released_tasks(run, seed) for seed in config.seeds}
    if len(released) > 1:
        raise ConfigError(
            f"the seeds of {run} have released different numbers of tasks; resume the run "
            "until all have released the same number"
        )
    after = released.pop()
    if not after and any(run.glob("seed-*/task-*-update-*.safetensors")):
        raise ConfigError(
            f"the head of {run} is trained by clients in rounds and cannot be carried over to "
            f"another encoder; resume the run with {config.encoder}. One that is to be upgraded "
            "needs --head released from its start"
        )
    if not after:
        raise ConfigError(
            f"{run} has released nothing yet; start a new run with --encoder {encoder}"
        )
    return with_settings(
        config,
        {"encoder": encoder, "encoders": (config.encoder,), "upgrade": after},
    )


def begin_upgrade(run: Path, config: Config, target: Path) -> RunDirectory:
    """The directory of the upgraded run, with what the old one released.

    An interrupted upgrade resumes: missing files are copied. A plan includes one evaluation, so
    that of the old run is taken over and marked as such. With enforced privacy an interrupted
    release must be finished first, with its own encoder.
    """
    directory = RunDirectory(target, config)
    if config.privacy.mode == "enforced" and not (target / "config.json").exists():
        for path in ledgers_of(run):
            Ledger.read(path).refuse_unfinished()
    directory.begin()
    old, _ = read_trace(run / "trace.jsonl")
    for seed in config.seeds:
        goal = directory.seed(seed)
        for file in _kept(run, seed, config.upgrade):
            goal.copy(file)
        evaluated = directory.find(kind="evaluation", seed=seed) is not None
        for line in old:
            if (line["kind"], line.get("seed")) == ("evaluation", seed) and not evaluated:
                directory.note(**{**line, "before_upgrade": True})
    return directory


def _kept(run: Path, seed: int, tasks: int) -> list[Path]:
    """The files of the first tasks' sums and lists and of their ledger, as far as they exist."""
    numbers = range(tasks)
    names = [
        *(f"task-{number}.safetensors" for number in numbers),
        *(f"task-{number}-list.safetensors" for number in numbers),
        *("ledger.jsonl", "ledger.head"),
    ]
    return [file for name in names if (file := run / f"seed-{seed}" / name).is_file()]


def _released_tasks(run: Path, seed: int) -> int:
    """The number of first tasks whose releases are all there."""
    tasks = 0
    while (run / f"seed-{seed}" / f"task-{tasks}.safetensors").is_file():
        tasks += 1
    return tasks
