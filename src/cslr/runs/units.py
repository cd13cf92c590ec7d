"""The unit of privacy of a run: its default, the number of units, and another unit's result."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cslr.config import Config, with_settings
from cslr.data.streams import EMBEDDED, Stream, load_stream
from cslr.errors import ConfigError
from cslr.privacy.plan import Unit
from cslr.runs.checks import check_privacy
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import EmbeddedStream
from cslr.runs.learn import run
from cslr.runs.results import Result
from cslr.runs.settled import SettledConfig

__all__ = ["units_of", "usual_unit", "with_unit"]


def usual_unit(config: Config) -> Unit:
    """The unit of a configuration that names none: a client, or what an embedded stream proposes.

    A method that cannot hide a person hides a client.
    """
    if config.stream.data is not None or config.stream.name not in EMBEDDED:
        return "client"
    stream = load_stream(config.stream.name, None)
    if stream.unit == "client":
        return "client"
    try:
        check_privacy(SettledConfig.of(with_settings(config, {"privacy.unit": stream.unit})))
    except ConfigError:
        return "client"
    return stream.unit


def units_of(config: Config, stream: Stream) -> int:
    """How many units of privacy are registered."""
    if config.privacy.unit == "person":
        return stream.registered_people
    return config.stream.clients or stream.clients


def with_unit(settled: SettledConfig, embedded: EmbeddedStream, unit: Unit) -> Result:
    """The same simulated run for another unit, without yardsticks; nothing of it is kept."""
    if settled.config.privacy.mode != "simulated":
        raise ValueError("settled: only a simulation can be repeated for another unit")
    other = with_settings(settled.given, {"privacy.unit": unit, "yardsticks": False})
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder) / "run", other)
        return run(SettledConfig.of(other), embedded, directory, lambda what, done, total: None)
