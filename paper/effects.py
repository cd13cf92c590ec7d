"""Effect sizes: the margin of one method over another, with intervals and p over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cslr.errors import ConfigError
from cslr.research.experiments.grid import Cell, Experiment
from cslr.seeding import Seeds
from paper.figure import NOT_RUN, UNDEFINED, number
from paper.layout import Spec, cells_of
from paper.names import called, key_of, setting_of
from paper.sheet import Entry, Sheet
from paper.statistics import (
    Comparison,
    Interval,
    holm,
    paired_bootstrap,
    paired_t,
    spread,
    summary_interval,
)
from paper.traces import Trace

__all__ = ["Effect", "effects", "effects_sheet"]


@dataclass(frozen=True)
class Effect:
    """One method against another on one stream, over the seeds that both ran."""

    stream: str
    method: str
    against: str
    seeds: tuple[int, ...]
    summary: Interval | None
    """The paper's interval; like the next two, None if fewer than two seeds can be compared."""
    t: Comparison | None
    bootstrap: Comparison | None
    holm: float = math.nan
    """The t-test's p, corrected for all comparisons of the method; NaN if there is none."""
    why_not: str = ""
    """Why there is nothing to compare."""

    @property
    def void(self) -> bool:
        """Whether both methods have the same scores with every seed, so nothing was compared."""
        return self.t is not None and self.t.interval == Interval(0.0, 0.0)

    @property
    def difference(self) -> float:
        """Δ; NaN where there is nothing to compare."""
        return math.nan if self.t is None else self.t.difference


def effects(experiment: Experiment, spec: Spec, traces: Mapping[str, Trace]) -> tuple[Effect, ...]:
    """Every method of ``of`` against every one of ``against``, stream by stream."""
    cells = cells_of(experiment, spec)
    ran = {key_of(setting_of(cell.config, spec.axis)) for cell in cells}
    for method in (*spec.of, *spec.against):
        if method not in ran:
            raise ConfigError(
                f"{experiment.path}, table {spec.name}: no cell has {spec.axis} {method!r}"
            )
    if not spec.of or not spec.against:
        raise ConfigError(f"{experiment.path}, table {spec.name}: effects need of and against")
    streams = dict.fromkeys(cell.config.stream.name for cell in cells)
    found = [
        _effect(cells, traces, stream, (method, against), spec)
        for method in spec.of
        for against in spec.against
        if method != against
        for stream in streams
    ]
    return _corrected(found)


def _effect(
    cells: Sequence[Cell],
    traces: Mapping[str, Trace],
    stream: str,
    pair: tuple[str, str],
    spec: Spec,
) -> Effect:
    (method, against), measure = pair, spec.value[0]
    of_stream = [cell for cell in cells if cell.config.stream.name == stream]
    x, y = (
        _by_seed(
            [c for c in of_stream if key_of(setting_of(c.config, spec.axis)) == each],
            traces,
            f"{each} on {stream}",
            measure,
        )
        for each in pair
    )
    seeds = tuple(seed for seed in sorted(x) if seed in y)
    ours, theirs = [x[seed] for seed in seeds], [y[seed] for seed in seeds]
    if len(seeds) < 2:
        return Effect(stream, method, against, seeds, None, None, None, why_not=NOT_RUN)
    if any(map(math.isnan, [*ours, *theirs])):
        return Effect(stream, method, against, seeds, None, None, None, why_not=UNDEFINED)
    rng = Seeds(0).at("paired bootstrap", stream, method, against, measure)
    return Effect(
        stream,
        method,
        against,
        seeds,
        summary_interval(spread(ours), spread(theirs)),
        paired_t(ours, theirs),
        paired_bootstrap(ours, theirs, rng),
    )


def _by_seed(
    own: Sequence[Cell], traces: Mapping[str, Trace], name: str, measure: str
) -> dict[int, float]:
    if len({cell.seed for cell in own}) < len(own):
        raise ConfigError(
            f"{name} has several settings of one seed: {own[0].title!r} is one of "
            "them; name those to compare in where"
        )
    return {cell.seed: traces[cell.name].value(measure) for cell in own if cell.name in traces}


def _corrected(found: Sequence[Effect]) -> tuple[Effect, ...]:
    """The effects with Holm's p over all comparisons of the same method."""
    adjusted: dict[Effect, float] = {}
    for method in dict.fromkeys(effect.method for effect in found):
        own = [(each, each.t.p) for each in found if each.method == method and each.t is not None]
        adjusted.update(zip((each for each, _ in own), holm([p for _, p in own]), strict=True))
    return tuple(replace(each, holm=adjusted.get(each, math.nan)) for each in found)


def effects_sheet(
    experiment: Experiment, spec: Spec, found: Sequence[Effect], notes: tuple[str, ...] = ()
) -> Sheet:
    """A row for each comparison."""
    return Sheet(
        f"{experiment.name}-{spec.name}",
        experiment.title,
        spec.caption,
        (
            "stream",
            "method",
            "against",
            "Δ",
            "paper's 95 % interval",
            "paired t, 95 %",
            "p",
            "p, Holm",
            "paired bootstrap, 95 %",
            "bootstrap p",
            "seeds",
        ),
        tuple(map(_row, found)),
        notes,
    )


def _row(effect: Effect) -> tuple[Entry, ...]:
    names = (
        called("stream.name", effect.stream),
        called("method", effect.method),
        called("method", effect.against),
    )
    if effect.t is None or effect.bootstrap is None or effect.summary is None:
        return (*names, effect.why_not, "", "", "", "", "", "", str(len(effect.seeds)))
    return (
        *names,
        "void" if effect.void else f"{effect.difference:+.1f}",
        interval_text(effect.summary),
        interval_text(effect.t.interval),
        chance(effect.t.p),
        chance(effect.holm),
        interval_text(effect.bootstrap.interval),
        chance(effect.bootstrap.p),
        str(len(effect.seeds)),
    )


def interval_text(interval: Interval) -> str:
    """[low, high] with one digit."""
    return f"[{number(interval.low, 1)}, {number(interval.high, 1)}]"


def chance(p: float) -> str:
    """A p with three digits."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"
