"""The paper's number, ours, and what may be said about the two."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
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

__all__ = ["Line", "counted", "lines"]

BETTER, WORSE, SAME, OTHER = "better", "worse", "the same", "different"
APART: Final = "not comparable"
_WHERE_ROSTER: Final = "better against the public, worse against the roster"


@dataclass(frozen=True)
class Line:
    """One number of the paper beside one of ours."""

    printed: Number
    row: str
    column: str
    paper: str
    ours: str
    verdict: str
    detail: str = ""

    @property
    def said(self) -> str:
        """The verdict with what goes with it."""
        return f"{self.verdict}; {self.detail}" if self.detail else self.verdict


def lines(table: PaperTable, built: Built | None) -> tuple[Line, ...]:
    """Every number of a table of the paper, once for each row of ours it stands beside."""
    if table.kind == "quantile":
        return tuple(map(_quantile, table.numbers))
    if table.kind == "accountant":
        return tuple(map(_priced, built.costs)) if built else ()
    make = {"effects": _effects, "margins": _margins}.get(table.kind, _scores)
    return tuple(make(table, built))


def counted(found: Iterable[Line]) -> dict[str, int]:
    """How many lines have which verdict, the most first."""
    return dict(Counter(line.verdict for line in found).most_common())


def _scores(table: PaperTable, built: Built | None) -> Iterator[Line]:
    axes = (built.spec.rows[0], built.spec.columns[0]) if built else ("", "")
    for printed in table.numbers:
        for row in (printed.row, *table.also.get(printed.row, ())):
            place = ((row,), (printed.column,))
            figure = built.layout.entries.get(place) if built and built.layout else None
            verdict, detail = _beside(printed.value, figure, table.kind == "counts")
            yield Line(
                printed,
                _row_name(axes[0], row, printed.row),
                called(axes[1], printed.column),
                _printed(printed, figure.measure.digits if figure else 1),
                figure.text if figure else NOT_RUN,
                verdict,
                detail,
            )


def _beside(printed: float, figure: Figure | None, count: bool) -> tuple[str, str]:
    """Counts are the same or not; scores of other label spaces are not comparable."""
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


def _effects(table: PaperTable, built: Built | None) -> Iterator[Line]:
    found = {(e.stream, e.method, e.against): e for e in built.effects} if built else {}
    for printed in table.numbers:
        for method in ("cslr", *table.also.get("cslr", ())):
            effect = found.get((printed.column, method, printed.row))
            verdict, detail = _gain(printed.value, effect)
            yield Line(
                printed,
                f"{called('method', method)} − {called('method', printed.row)}",
                called("stream.name", printed.column),
                f"{printed.value:+.1f} [{printed.low}, {printed.high}]",
                _effect_text(effect),
                verdict,
                detail,
            )


def _effect_text(effect: Effect | None) -> str:
    if effect is None:
        return NOT_RUN
    if effect.summary is None:
        return effect.why_not
    return f"{_signed(effect.difference)} {interval_text(effect.summary)}"


def _gain(printed: float, effect: Effect | None) -> tuple[str, str]:
    """A margin can be compared; with it, whether ours is one at all."""
    if effect is None or effect.t is None:
        return (effect.why_not if effect else NOT_RUN), ""
    holds = "holds 0" if 0.0 in effect.t.interval else "leaves 0 out"
    return (
        _margin_verdict(printed, effect.difference),
        f"our paired interval {holds}, Holm's p is {chance(effect.holm)}",
    )


def _margin_verdict(printed: float, ours: float) -> str:
    rounded = round(ours, 1)
    if rounded == printed:
        return SAME
    return BETTER if rounded > printed else WORSE


def _margins(table: PaperTable, built: Built | None) -> Iterator[Line]:
    for printed in table.numbers:
        for method in ("cslr", *table.also.get("cslr", ())):
            margins = (
                _by_stream(built.layout, method, table.against[printed.row])
                if built and built.layout
                else []
            )
            known = margins and not any(map(math.isnan, margins))
            ours = (min if printed.column == "least" else max)(margins) if known else math.nan
            yield Line(
                printed,
                f"{called('method', method)} − {called('method', printed.row)}",
                printed.column,
                f"{printed.value:+.1f}",
                _signed(ours) if known else NOT_RUN,
                _margin_verdict(printed.value, ours) if known else NOT_RUN,
            )


def _by_stream(layout: Layout, method: str, against: tuple[str, ...]) -> list[float]:
    """The margin over the best of ``against``, stream by stream; NaN where one did not run."""

    def mean(row: str, column: tuple[str, ...]) -> float:
        figure = layout.entries.get(((row,), column))
        return figure.spread.mean if figure and figure.known else math.nan

    margins = []
    for column in layout.columns:
        others = [mean(row, column) for row in against]
        best = math.nan if any(map(math.isnan, others)) else max(others)
        margins.append(mean(method, column) - best)
    return margins


def _priced(cost: Cost) -> Line:
    """What a promise costs under a reading; a hundredth is rounding."""
    promised = cost.promise.epsilon
    public, roster = cost.public <= 1.01 * promised, cost.roster <= 1.01 * promised
    verdict = (BETTER if roster else _WHERE_ROSTER) if public else WORSE
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
    """Ours; where the paper's is another, whose number it stands beside."""
    name = called(axis, row)
    return name if row == printed else f"{name} (for {called(axis, printed)})"


def _printed(printed: Number, digits: int) -> str:
    value = number(printed.value, digits)
    return value if printed.sd is None else f"{value} ± {number(printed.sd, digits)}"


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"
