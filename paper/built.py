"""A table of an experiment, built from the traces: what it shows and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from cslr.research.experiments.grid import Cell, Experiment
from paper.accountant import Cost, accountant_sheet, costs
from paper.effects import Effect, effects, effects_sheet
from paper.facts import REBUILD, facts
from paper.layout import Layout, Spec, arrange, cells_of, sheet_of
from paper.printed import Paper
from paper.sheet import Sheet
from paper.traces import Trace

__all__ = ["Built", "build"]


@dataclass(frozen=True)
class Built:
    """One table. Of layout, effects and costs only the one of its kind is set."""

    experiment: Experiment
    spec: Spec
    sheet: Sheet
    cells: tuple[Cell, ...] = ()
    layout: Layout | None = None
    effects: tuple[Effect, ...] = ()
    costs: tuple[Cost, ...] = ()


def build(experiment: Experiment, spec: Spec, traces: Mapping[str, Trace], paper: Paper) -> Built:
    """The table that ``spec`` asks for."""
    if spec.kind == "accountant":
        priced = costs(paper.promises)
        sheet = accountant_sheet(experiment, spec, priced, _how_priced(spec, paper))
        return Built(experiment, spec, sheet, costs=priced)
    cells = cells_of(experiment, spec)
    notes = (*([spec.note] if spec.note else []), *facts(experiment.name, cells, traces))
    made = partial(Built, experiment, spec, cells=cells)
    if spec.kind == "effects":
        found = effects(experiment, spec, traces)
        return made(sheet=effects_sheet(experiment, spec, found, notes), effects=found)
    layout = arrange(experiment, spec, traces)
    return made(sheet=sheet_of(experiment, spec, layout, notes), layout=layout)


def _how_priced(spec: Spec, paper: Paper) -> tuple[str, ...]:
    first = paper.promises[0]
    return (
        *([spec.note] if spec.note else []),
        f"No stream, no scenario, no seeds: computed from q = {first.q:g}, δ = {first.delta:g} and "
        f"σ alone. Scope: the replay release. Unit: one client, zero-out adjacency.",
        "public: who took part is not known, and sampling amplifies (PLD). roster: it is known "
        "(closed form). The paper's RDP: orders 2 to 64, the conversion of its Theorem 4. Four "
        "statistics of a round share its coin; a list has its sender's name and no coin.",
        f"Command: `{REBUILD}`.",
    )
