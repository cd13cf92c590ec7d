"""Which head a run chooses by itself: from declared numbers alone, and as the planner foretells."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cslr.config import Config, with_settings
from cslr.data.stream import Label, Task
from cslr.methods.outlook import Federated, outlook_of
from cslr.privacy.plan import Budget
from cslr.runs.embedded import SettledConfig
from cslr.runs.prepare import with_head

COMMON = [(0, 1, 2, 3)] * 3
APART = {
    "tagging": [(0, 1), (0, 2), (0, 3)],
    "classification": [(0, 1), (2,), (3,)],
    "intents": [(0, 1), (2,), (3,)],
}


def declared(family: str, tasks, units: int, tasks_per_person: int = 1):
    """A stream of own rows as ``with_head`` may see it: without a single row."""
    return SimpleNamespace(
        family=family,
        labels=tuple(Label(f"L{n}", "described") for n in range(4)),
        tasks=tuple(Task(f"t{n}", labels) for n, labels in enumerate(tasks)),
        people=units,
        clients=units,
        cap=None,
        tasks_per_person=tasks_per_person,
    )


def chosen(stream, **settings: object) -> str | None:
    """The head of a run on own rows with these settings."""
    given = {f"privacy.{name}": value for name, value in settings.items() if value is not None}
    settled = SettledConfig.of(with_settings(Config(), given))
    return with_head(replace(settled, declaration=object()), stream).config.head.kind


@pytest.mark.parametrize("unit", ["person", "client"])
@pytest.mark.parametrize("family", ["classification", "intents", "tagging"])
@pytest.mark.parametrize("common", [True, False])
def test_a_run_chooses_the_head_that_the_planner_foretells(family, unit, common):
    tasks, heads = COMMON if common else APART[family], set()
    numbers = itertools.product((99, 120, 500, 5000), (1.0, 4.0, math.inf), (None, 1, 3))
    for units, epsilon, cap in numbers:
        federation = Federated(
            Budget(epsilon, unit=unit),
            units,
            len(tasks),
            labels_per_task=len(tasks[0]),
            all_labels=common,
            family=family,
        )
        head = chosen(declared(family, tasks, units), unit=unit, epsilon=epsilon, cap=cap)
        heads.add(head)
        assert (head == "rounds") is outlook_of(federation, cap).rounds, (units, epsilon, cap)
    assert heads == ({None, "rounds"} if common or family == "tagging" else {None})


def test_a_person_of_several_tasks_has_the_noise_of_a_cap_of_so_many():
    """And as many more contributors to a task; both are declared."""
    for several in (1, 2, 3):
        stream = declared("tagging", APART["tagging"], 100, several)
        for epsilon in (1.0, 2.0, 4.0):
            settings = {"unit": "person", "epsilon": epsilon}
            assert chosen(stream, **settings) == chosen(stream, **settings, cap=several)


def test_a_head_that_was_asked_for_stays():
    stream = declared("tagging", APART["tagging"], 5000)
    for kind in ("released", "rounds", "dp-fedavg"):
        settled = SettledConfig.of(with_settings(Config(), {"head.kind": kind}))
        assert with_head(settled, stream).config.head.kind == kind
