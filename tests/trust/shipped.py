"""Every plan that the repository ships: of an experiment, an embedded stream or the README."""

from __future__ import annotations

import tomllib
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from cslr.config import Config, load_config
from cslr.data.streams import load_stream
from cslr.methods.registry import METHODS
from cslr.privacy.plan import Budget, Plan, calibrate
from cslr.research.experiments.grid import all_cells, load_experiment
from cslr.runs.embedded import SettledConfig
from cslr.runs.prepare import plan_of

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
EMBEDDED = ("clinic", "desk", "ward")
TASKS: dict[str, tuple[int, int | None]] = {  # tasks and cap of streams that need data to be read
    "ag-news": (4, None),
    "ag-news-small": (4, None),
    "ag-news-pairs": (2, None),
    "ag-news-pairs-small": (2, None),
    "amazon": (5, None),
    "amazon-products": (5, None),
    "multiwoz-services": (7, None),
    "ner": (6, 1),
    "multiwoz": (7, None),
    "ontonotes": (6, 1),
}
README = (
    {},
    {"stream.name": "ag-news", "privacy.epsilon": 4.0},
    {"method": "cslr-paper"},
    {"head.kind": "dp-fedavg", "replay.release": "list"},
)


@cache
def shape_of(name: str) -> tuple[int, int | None]:
    """Tasks and cap of a stream."""
    if name in EMBEDDED:
        stream = load_stream(name, None)
        return len(stream.tasks), stream.cap
    if name not in TASKS:
        pytest.fail(f"a shipped experiment uses {name!r}: write its tasks and cap into TASKS")
    return TASKS[name]


def shipped_configs() -> list[Config]:
    files = [
        path for path in EXPERIMENTS.glob("*.toml") if "part" in tomllib.loads(path.read_text())
    ]
    cells = [cell.config for cell in all_cells(map(load_experiment, sorted(files)))]
    usual = [
        load_config(None, {"method": method, "stream.name": stream, "privacy.epsilon": epsilon})
        for method, stream, epsilon in product(METHODS, EMBEDDED, (4.0, 8.0))
    ]
    return [*cells, *usual, *(load_config(None, given) for given in README)]


def shipped_plans() -> tuple[Plan, ...]:
    """Every distinct plan with noise; `cslr plan` of the README among them."""
    found = [
        plan_of(SettledConfig.of(config), *shape_of(config.stream.name))
        for config in shipped_configs()
    ]
    found.append(calibrate(Budget(4.0), 6, cap=1))
    return tuple(dict.fromkeys(plan for plan in found if plan.unit is not None))
