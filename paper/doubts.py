"""Where the paper's numbers contradict each other, and where they hold: computed, not typed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from paper.accountant import Cost
from paper.figure import number
from paper.printed import Number, Paper
from paper.statistics import Spread, summary_interval

__all__ = ["confirmed", "doubts"]

_SEEDS: Final = 5


def doubts(paper: Paper, costs: Sequence[Cost] = ()) -> tuple[str, ...]:
    """Contradictions and gaps in the printed numbers; those about σ only if costs are given."""
    return (
        _anchors(paper),
        _list_of_one(paper),
        _moment_of_learning(paper),
        *_noise_table(paper, costs),
        _noise_norm(paper),
        _saturation(paper),
        _rounds(paper),
        "The accountant prices list release and aggregation under one sampling rate. A list comes "
        "with its sender's name: there is no cohort to hide in, and nothing is amplified.",
        "The aggregation equation adds noise of standard deviation σ to a mean over clients; "
        "Theorem 4 adds σS to a sum of sensitivity S. With B = 1 the two differ by the size of the "
        "cohort, which the equation takes as realised, hence as data.",
    )


def confirmed(paper: Paper) -> tuple[str, ...]:
    """Printed results that follow from other printed numbers."""
    return (_intervals(paper), _claims(paper), _orders(paper))


def _anchors(paper: Paper) -> str:
    m = f"{paper.number('app:exp_details', 'anchors', 'm').value:g}"
    swept = paper.tables["fig:anchor_sweep"]
    table = paper.number("tab:main", "cslr", "ag-news").value
    same = [n.column for n in swept.numbers if n.value == table]
    figure = swept.number("ag-news", m).value
    return (
        f"All results are said to use m = {m} anchors. At m = {m} fig:anchor_sweep has {figure}, "
        f"tab:main {table}; the table's value is the figure's at m = {', '.join(same)}."
    )


def _list_of_one(paper: Paper) -> str:
    pairs = [
        (paper.number("tab:list_size", row, "1"), paper.number(label, "dp-stat-share", "ag-news"))
        for row, label in (("aa", "tab:main"), ("bwt", "tab:bwt"))
    ]
    said = ", ".join(f"{_printed(one)} and {_printed(other)}" for one, other in pairs)
    return (
        f"CSLR with L = 1 (tab:list_size) and DP-Stat-Share (tab:main, tab:bwt) agree in every "
        f"digit and deviation ({said}): they are one run, or one method under two names."
    )


def _moment_of_learning(paper: Paper) -> str:
    tasks = paper.number("tab:protocol", "ag-news", "tasks").value
    said = []
    for method, name in (("dp-sgd", "DP-SGD"), ("cslr", "CSLR")):
        aa, bwt = (
            paper.number(label, method, "ag-news").value for label in ("tab:main", "tab:bwt")
        )
        said.append(f"{aa - (tasks - 1) / tasks * bwt:.1f} for {name}")
    return (
        f"AA − (T − 1)/T · BWT is the mean score right after learning a task: {', '.join(said)} on "
        f"AG-News. With one topic a task and the task known, as in tab:protocol, it would be 100."
    )


def _noise_table(paper: Paper, costs: Sequence[Cost]) -> list[str]:
    if not costs:
        return []
    promises = list(dict.fromkeys(cost.promise for cost in costs))
    promised = " / ".join(f"{promise.epsilon:g}" for promise in promises)
    sigma = " / ".join(number(promise.sigma, 2) for promise in promises)
    said = []
    for reading in dict.fromkeys(cost.reading for cost in costs):
        own = [cost for cost in costs if cost.reading == reading]
        public, roster = (
            " / ".join(f"{value:.3g}" for value in values)
            for values in ([c.public for c in own], [c.roster for c in own])
        )
        said.append(f"{reading.title}: {public} against the public, {roster} against the roster")
    return [
        f"σ = {sigma} does not buy ε = {promised}: {'; '.join(said)}. {_readings_that_hold(costs)}"
    ]


def _readings_that_hold(costs: Sequence[Cost]) -> str:
    """The readings that give every printed ε within 10 %, by any of the accountants."""
    held = [
        f"{reading.title} ({name})"
        for reading in dict.fromkeys(cost.reading for cost in costs)
        for name in ("public", "public_rdp", "roster", "roster_rdp")
        if all(
            abs(getattr(cost, name) / cost.promise.epsilon - 1) <= 0.1
            for cost in costs
            if cost.reading == reading
        )
    ]
    return f"Within a tenth of all three: {', '.join(held) or 'no reading, by no accountant'}."


def _noise_norm(paper: Paper) -> str:
    clients = paper.number("tab:protocol", "ag-news", "clients").value
    q, sigma = (paper.number("tab:accountant", row, "4").value for row in ("q", "sigma"))
    d = paper.number("app:exp_details", "dimension", "d").value
    cohort = q * clients
    norm = sigma * math.sqrt(d) / cohort
    return (
        f"At ε = 4 on AG-News {cohort:g} of {clients:g} clients take part in a round. Noise of "
        f"σ = {sigma:g} on a sum of vectors of norm at most 1 in {d:g} dimensions leaves noise of "
        f"norm {norm:.1f} in their mean, which itself is at most 1. That such means carry replay "
        f"at all needs an explanation the paper does not give."
    )


def _saturation(paper: Paper) -> str:
    said, drawn = (
        paper.number("app:exp_details", "saturation", where).value for where in ("caption", "drawn")
    )
    return (
        f"The saturation point of fig:anchor_sweep is {said:g} in its caption; drawn is {drawn:g}."
    )


def _rounds(paper: Paper) -> str:
    rounds = paper.number("app:exp_details", "rounds per task", "rounds").value
    return (
        f"Rounds t = 1, …, T are tasks in the problem setting and in Theorem 4; the appendix has "
        f"{rounds:g} rounds a task. Which of them release anything is not said; ε depends on it."
    )


def _intervals(paper: Paper) -> str:
    """The effect sizes computed again from the means and deviations of tab:main."""
    table = paper.tables["tab:effect_sizes"]
    same = sum(_recomputed(paper, each) == (each.low, each.high) for each in table.numbers)
    return (
        f"{same} of {len(table.numbers)} intervals of tab:effect_sizes come out as printed from "
        f"the means and deviations of tab:main."
    )


def _recomputed(paper: Paper, printed: Number) -> tuple[float, float]:
    ours, theirs = (
        paper.number("tab:main", method, printed.column) for method in ("cslr", printed.row)
    )
    x, y = (Spread(each.value, each.sd or 0.0, _SEEDS) for each in (ours, theirs))
    interval = summary_interval(x, y)
    return round(interval.low, 1), round(interval.high, 1)


def _claims(paper: Paper) -> str:
    table = paper.tables["sec:experiments"]
    same = 0
    for row, baselines in table.against.items():
        margins = []
        for column in dict.fromkeys(n.column for n in paper.tables["tab:main"].numbers):
            scores = paper.tables["tab:main"].column(column)
            best = max(scores[baseline].value for baseline in baselines)
            margins.append(round(scores["cslr"].value - best, 1))
        printed = tuple(table.number(row, column).value for column in ("least", "most"))
        same += (min(margins), max(margins)) == printed
    return f"{same} of {len(table.against)} ranges of margins in the text follow from tab:main."


def _orders(paper: Paper) -> str:
    aa, bwt = paper.tables["tab:main"], paper.tables["tab:bwt"]
    columns = list(dict.fromkeys(number.column for number in bwt.numbers))
    same = sum(_order(aa.column(c), bwt.column(c)) == _order(bwt.column(c)) for c in columns)
    return (
        f"On {same} of {len(columns)} streams tab:bwt orders its methods exactly as tab:main does."
    )


def _order(scores: dict[str, Number], among: dict[str, Number] | None = None) -> list[str]:
    methods = [method for method in scores if among is None or method in among]
    return sorted(methods, key=lambda method: -scores[method].value)


def _printed(number: Number) -> str:
    return f"{number.value} ± {number.sd}"
