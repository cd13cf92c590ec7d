"""The paper's number, ours, and the verdict on the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from scipy import stats

from paper.accountant import Cost
from paper.built import Built
from paper.effects import Effect, chance, interval_text
from paper.figure import NOT_RUN, Figure, number
from paper.layout import Layout
from paper.names import called
from paper.printed import Number, PaperTable
from paper.statistics import Comparison, Interval, paired_t

__all__ = ["Line", "counted", "judged", "lines"]

Tables = Mapping[tuple[str, str], Built]
"""By experiment and name."""

SAME, OTHER = "the same", "different"
APART: Final = "not comparable"
CONFIRMED, SMALLER, LARGER = "confirmed", "smaller gain", "larger gain"
NOT_SHOWN, REVERSED, VOID = "no gain shown", "reversed", "void"
KEPT, NOT_KEPT = "promise kept", "promise not kept"
WHERE_ROSTER: Final = "promise kept against the public, not against the roster"
_ROUNDING: Final = 0.05
"""Half of the last digit that the paper prints."""


@dataclass(frozen=True)
class Line:
    """One number of the paper and one of ours."""

    printed: Number
    row: str
    column: str
    paper: str
    ours: str
    verdict: str
    detail: str = ""
    place: tuple[str, str, str, str] = ("", "", "", "")
    """Experiment, table, row and column of ours."""

    @property
    def said(self) -> str:
        """The verdict and its detail."""
        return f"{self.verdict}; {self.detail}" if self.detail else self.verdict


def lines(table: PaperTable, built: Built | None, others: Tables | None = None) -> tuple[Line, ...]:
    """Every number of a table of the paper, once for each row of ours it is compared with.

    others: all our tables, for rows that are compared with another one than ``built``.
    """
    if table.kind == "quantile":
        return tuple(map(_quantile, table.numbers))
    if table.kind == "accountant":
        return tuple(map(_priced, built.costs)) if built else ()
    make = {"effects": _effects, "margins": _margins}.get(table.kind, _scores)
    return tuple(make(table, built, others or {}))


def counted(found: Iterable[Line]) -> dict[str, int]:
    """The number of lines by verdict, the most frequent first."""
    return dict(Counter(line.verdict for line in found).most_common())


def _scores(table: PaperTable, built: Built | None, others: Tables) -> Iterator[Line]:
    for printed in table.numbers:
        instead = table.instead.get(printed.row)
        own, beside = built, (printed.row, *table.also.get(printed.row, ()))
        if instead is not None:
            own, beside = others.get((instead.experiment, instead.table)), (instead.row,)
        axes = (own.spec.rows[0], own.spec.columns[0]) if own else ("method", "stream.name")
        for row in beside:
            figure = None
            if own and own.layout:
                figure = own.layout.entries.get(((row,), (printed.column,)))
            verdict, detail = _beside(printed.value, figure, table.kind == "counts")
            yield Line(
                printed,
                called("method", printed.row) if instead else _row_name(axes[0], row, printed.row),
                called(axes[1], printed.column),
                _printed(printed, figure.measure.digits if figure else 1),
                figure.text if figure else NOT_RUN,
                verdict,
                detail,
                _place(own, row, printed.column),
            )


def _place(built: Built | None, row: str, column: str) -> tuple[str, str, str, str]:
    return (built.experiment.name, built.spec.name, row, column) if built else ("", "", row, column)


def _beside(printed: float, figure: Figure | None, count: bool) -> tuple[str, str]:
    """Verdict and detail: counts are equal or not; scores of other label spaces not comparable."""
    if figure is None or not figure.by_seed:
        return NOT_RUN, ""
    if not figure.known:
        return APART, "not in the traces" if count else "ours is undefined"
    if count:
        same = all(value == printed for value in figure.values)
        return (SAME, "") if same else (OTHER, "")
    return APART, f"ours is {_direction(figure.spread.mean - printed, figure.measure.digits)}"


def _direction(difference: float, digits: int) -> str:
    shown = number(abs(difference), digits)
    if float(shown) == 0:
        return "the same number"
    return f"{'higher' if difference > 0 else 'lower'} by {shown}"


def _effects(table: PaperTable, built: Built | None, others: Tables) -> Iterator[Line]:
    for printed in table.numbers:
        instead = table.instead.get(printed.row)
        own, pairs = built, [(m, printed.row) for m in ("cslr", *table.also.get("cslr", ()))]
        if instead is not None:
            own = others.get((instead.experiment, instead.table))
            pairs = [(instead.of, instead.row)]
        axis = own.spec.axis if own else "method"
        found = {(e.stream, e.method, e.against): e for e in own.effects} if own else {}
        for method, against in pairs:
            effect = found.get((printed.column, method, against))
            verdict, detail = _gain(printed, effect)
            yield Line(
                printed,
                f"{called(axis, method)} − {called(axis, against)}",
                called("stream.name", printed.column),
                f"{printed.value:+.1f} [{printed.low}, {printed.high}]",
                _effect_text(effect),
                verdict,
                detail,
                _place(own, method, printed.column),
            )


def _effect_text(effect: Effect | None) -> str:
    """The margin with its paired interval, or why there is none."""
    if effect is None:
        return NOT_RUN
    if effect.t is None:
        return effect.why_not
    return f"{_signed(effect.difference)} {interval_text(effect.t.interval)}"


def _gain(printed: Number, effect: Effect | None) -> tuple[str, str]:
    """Verdict and detail on a printed margin, by our paired interval."""
    if effect is None or effect.t is None:
        return (effect.why_not if effect else NOT_RUN), ""
    if effect.void:
        return VOID, "both sides have the same figures, seed by seed"
    return judged(printed, effect.t), f"paired, Holm's p is {chance(effect.holm)}"


def judged(printed: Number, ours: Comparison) -> str:
    """The verdict on a printed gain by our paired interval; its printed interval counts, if any."""
    low = printed.value - _ROUNDING if printed.low is None else printed.low
    high = printed.value + _ROUNDING if printed.high is None else printed.high
    if ours.interval == Interval(0.0, 0.0):
        return VOID
    if ours.interval.high < 0:
        return REVERSED
    if ours.interval.low <= 0:
        return NOT_SHOWN
    if ours.interval.high < low:
        return SMALLER
    return LARGER if ours.interval.low > high else CONFIRMED


def _margins(table: PaperTable, built: Built | None, others: Tables) -> Iterator[Line]:
    for printed in table.numbers:
        instead = table.instead.get(printed.row)
        own, pairs = (
            built,
            [
                (method, table.against[printed.row])
                for method in ("cslr", *table.also.get("cslr", ()))
            ],
        )
        if instead is not None:
            own = others.get((instead.experiment, instead.table))
            pairs = [(instead.of, (instead.row,))]
        for method, against in pairs:
            margins = _by_stream(own.layout, method, against) if own and own.layout else []
            known = bool(margins) and all(margin is not None for margin in margins)
            chosen = min if printed.column == "least" else max
            ours = chosen((m for m in margins if m), key=lambda m: m.difference) if known else None
            axis = own.spec.rows[0] if own else "method"
            yield Line(
                printed,
                f"{called(axis, method)} − {called(axis if instead else 'method', printed.row)}",
                printed.column,
                f"{printed.value:+.1f}",
                f"{_signed(ours.difference)} {interval_text(ours.interval)}" if ours else NOT_RUN,
                judged(printed, ours) if ours else NOT_RUN,
                place=_place(own, method, ""),
            )


def _by_stream(layout: Layout, method: str, against: tuple[str, ...]) -> list[Comparison | None]:
    """The paired margin over the best of ``against`` by stream; None if one did not run."""
    margins: list[Comparison | None] = []
    for column in layout.columns:
        figures = [layout.entries.get(((row,), column)) for row in (method, *against)]
        ran = [figure for figure in figures if figure is not None and figure.known]
        if len(ran) < len(figures):
            margins.append(None)
            continue
        ours, *theirs = ran
        best = max(theirs, key=lambda figure: figure.spread.mean)
        seeds = [seed for seed in ours.by_seed if seed in best.by_seed]
        if len(seeds) < 2:
            margins.append(None)
            continue
        x, y = ([each.by_seed[seed] for seed in seeds] for each in (ours, best))
        margins.append(paired_t(x, y))
    return margins


def _priced(cost: Cost) -> Line:
    """The line of a printed ε under a reading; 1 % more counts as rounding."""
    promised = cost.promise.epsilon
    public, roster = cost.public <= 1.01 * promised, cost.roster <= 1.01 * promised
    verdict = (KEPT if roster else WHERE_ROSTER) if public else NOT_KEPT
    return Line(
        Number(row=cost.reading.key, column=f"{promised:g}", value=cost.promise.sigma),
        cost.reading.title,
        f"ε = {promised:g}",
        f"σ = {number(cost.promise.sigma, 2)}",
        f"ε = {cost.public:.3g} public ({cost.public_rdp:.3g} by the paper's RDP), "
        f"{cost.roster:.3g} roster",
        verdict,
        f"it takes σ = {number(cost.needed_public, 2)} public, "
        f"{number(cost.needed_roster, 2)} roster",
    )


def _quantile(printed: Number) -> Line:
    ours = float(stats.t.ppf(0.975, int(printed.column)))
    same = round(ours, 3) == printed.value
    return Line(
        printed,
        printed.row,
        f"{printed.column} degrees of freedom",
        f"{printed.value}",
        f"{ours:.3f}",
        SAME if same else OTHER,
    )


def _row_name(axis: str, row: str, printed: str) -> str:
    """The name of our row, and of the paper's row if that is another one."""
    name = called(axis, row)
    return name if row == printed else f"{name} (for {called(axis, printed)})"


def _printed(printed: Number, digits: int) -> str:
    value = number(printed.value, digits)
    return value if printed.sd is None else f"{value} ± {number(printed.sd, digits)}"


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"
