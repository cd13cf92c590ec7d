"""What ``cslr anchors`` and ``cslr quality`` print."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cslr.research.theory.anchors import Examined, Prescription, Sweep
from cslr.research.theory.encoder_comparison import Compared, Kept, Reach
from cslr.research.theory.retention import MEASURES, Retention

__all__ = [
    "compared_json",
    "examined_json",
    "prescription_json",
    "print_compared",
    "print_examined",
    "print_prescription",
    "print_retention",
]

_LISTS: Final = "NON-PRIVATE: lists of simulated clients are read without noise. For studies only."
_ROWS: Final = "NON-PRIVATE: test rows are read without noise. For studies only."


def print_prescription(
    prescription: Prescription, guarantee: tuple[int, float] | None, console: Console
) -> None:
    """Print Theorem 2 in two sentences, and the guarantee of another number of anchors."""
    console.print(
        f"\nTheorem 2: [bold]m = {prescription.anchors}[/bold] anchors separate N = "
        f"{prescription.candidates} candidates with probability {1 - prescription.failure:g}, if "
        "the signatures of each pair of different modes differ by γ at a share p = "
        f"{prescription.hit:g} of public sentences."
    )
    console.print(
        f"Its proof requires only {prescription.fewest}: N(N − 1)/2 pairs, each not separated with "
        "probability (1 − p)^m."
    )
    if guarantee is not None:
        anchors, failure = guarantee
        console.print(
            f"m = {anchors} anchors fail to separate some pair with probability at most "
            f"[bold]{failure:.3g}[/bold]."
        )


def prescription_json(
    prescription: Prescription, guarantee: tuple[int, float] | None
) -> dict[str, Any]:
    """The object that ``cslr anchors --json`` prints if nothing is measured."""
    plain: dict[str, Any] = asdict(prescription)
    if guarantee is not None:
        plain["guarantee"] = {"anchors": guarantee[0], "failure": guarantee[1]}
    return plain


def print_examined(examined: Examined, console: Console) -> None:
    """Print the sweep, the suggested number of anchors, and facts on the public sentences."""
    seen = examined.sweep
    console.print(f"\n[bold red]{_LISTS}[/bold red]")
    console.print(_sweep_table(examined), _suggestion(seen, examined.unit), sep="\n")
    covered = examined.coverage
    table = Table(title="Median distance to the nearest anchor", title_justify="left")
    for name in (f"public {examined.unit}s", "clients' rows", "means of candidates"):
        table.add_column(name, justify="right")
    table.add_row(f"{covered.public:.3f}", f"{covered.rows:.3f}", f"{covered.candidates:.3f}")
    console.print(table)
    console.print(
        f"{_percent(covered.outside)} of the rows are farther from the {covered.anchors} "
        f"anchors than 95 % of the {covered.sentences} public {examined.unit}s; 5 % is expected "
        "if clients' texts are distributed as the public corpus is."
    )
    console.print(Text(f"Licence of the public sentences: {examined.licence}"), soft_wrap=True)


def _sweep_table(examined: Examined) -> Table:
    seen = examined.sweep
    sampled = "" if seen.total == seen.candidates else f" (of {seen.total})"
    table = Table(
        title=f"{examined.stream}, seed {examined.seed}: {seen.candidates}{sampled} candidates, "
        f"{seen.pairs} pairs of different modes, γ = {seen.margin:g}",
        title_justify="left",
    )
    heads = ("m", "mean p̂", "least p̂", "least margin", "missed", "bound", "neighbours")
    for name in heads:
        table.add_column(name, justify="right")
    for each in seen.tried:
        table.add_row(
            str(each.anchors),
            f"{each.hit_mean:.3f}",
            f"{each.hit_least:.3f}",
            f"{each.margin:.3f}",
            _percent(each.missed),
            f"{each.bound:.2g}",
            _percent(each.neighbours),
        )
    return table


def _suggestion(seen: Sweep, unit: str) -> str:
    lines = []
    if seen.enough is None:
        lines.append(
            "None of the anchor counts tried separates all pairs by γ in "
            f"{_percent(1 - seen.failure)} of draws."
        )
    else:
        lines.append(
            f"Suggested: [bold]m = {seen.enough}[/bold], the smallest count tried that "
            f"separates all pairs by γ in {_percent(1 - seen.failure)} of draws."
        )
    if seen.prescribed is None:
        lines.append(
            f"{_percent(seen.unseen, 2)} of the pairs differ by γ at none of {seen.reference} "
            f"public {unit}s: Theorem 2 gives no m for them. Try a smaller --margin."
        )
    else:
        lines.append(
            f"Theorem 2 requires m = {seen.prescribed}, with p̂ = {seen.hit_least:.3f}, the "
            f"minimum over pairs at {seen.reference} public {unit}s."
        )
    return "\n".join(lines)


def examined_json(examined: Examined) -> dict[str, Any]:
    """The object ``cslr anchors --stream … --json`` prints."""
    return {
        "private": False,
        "stream": examined.stream,
        "seed": examined.seed,
        "unit": examined.unit,
        **asdict(examined.sweep),
        "suggested": examined.sweep.enough,
        "coverage": {**asdict(examined.coverage), "ratio": examined.coverage.ratio},
        "licence": asdict(examined.licence),
    }


def print_compared(compared: Compared, console: Console) -> None:
    """Print how well encoders map to each other, and whether the sentences cover the task."""
    table = Table(
        title=f"{compared.stream}, seed {compared.seed}: {compared.held_out} held-out of "
        f"{compared.sentences} public {compared.unit}s",
        title_justify="left",
    )
    for name in ("from", "to", "coordinates"):
        table.add_column(name, no_wrap=name == "coordinates")
    for name in ("missed", "neighbours", "label", "clear label"):
        table.add_column(name, justify="right")
    for pair in compared.pairs:
        for index, kept in enumerate(pair.ways):
            names = (pair.source, pair.target) if index == 0 else ("", "")
            table.add_row(*names, *_kept(kept), end_section=kept is pair.ways[-1])
    console.print("\nOnly public sentences and label texts were read; no ε was spent.", table)
    console.print(
        "All columns but missed are shares of agreement with the second encoder itself. "
        f"{_percent(compared.by_chance)} of its ten nearest neighbours would be found by chance. "
        "100 % minus the last column estimates what label texts would lose."
    )
    for each in compared.reach:
        console.print(_reach(each), soft_wrap=True)


def _kept(kept: Kept) -> tuple[str, ...]:
    name = kept.way if kept.anchors is None else f"{kept.way} {kept.anchors}"
    error = "" if kept.error is None else _percent(kept.error)
    return name, error, *map(_percent, (kept.neighbours, kept.labels, kept.clear))


def _reach(each: Reach) -> Text:
    away = (
        f"{each.encoder}: median distance to the nearest public sentence: label texts "
        f"{each.labels:.3f}, public sentences {each.public:.3f}."
    )
    if not each.outside:
        return Text(away)
    return Text(
        f"{away}\nWarning: the public sentences may not cover this task. "
        f"{', '.join(each.outside)}: farther from the nearest public sentence than 95 % of "
        "the public sentences are. Use public sentences that resemble the clients' texts.",
        style="yellow",
    )


def compared_json(compared: Compared) -> dict[str, Any]:
    """The object ``cslr anchors --encoders … --json`` prints."""
    plain = asdict(compared)
    covered = not any(each.outside for each in compared.reach)
    return {"public": True, **plain, "by_chance": compared.by_chance, "covered": covered}


def print_retention(retention: Retention, console: Console) -> None:
    """Print a row per task (means over seeds), and the measures' correlation with forgetting."""
    console.print(f"\n[bold red]{_ROWS}[/bold red]")
    seeds = list(dict.fromkeys(each.seed for each in retention.judged))
    table = Table(
        title=f"Replay of {retention.method} on {retention.stream} against its test rows, mean "
        f"over {len(seeds)} seeds",
        title_justify="left",
    )
    table.add_column("task", no_wrap=True)
    for name in (*MEASURES, "forgotten"):
        table.add_column(name, justify="right")
    for task in dict.fromkeys(each.task for each in retention.judged):
        of_task = [each for each in retention.judged if each.task == task]
        lost = _mean([each.forgotten for each in of_task])
        values = {name: _mean([each.measure(name) for each in of_task]) for name in MEASURES}
        cells = [
            _figure(value, ".3f" if name == "energy" else ".2f") for name, value in values.items()
        ]
        table.add_row(task, *cells, _figure(lost, "+.1f"))
    correlations = [_figure(retention.correlation(name), "+.2f") for name in MEASURES]
    table.add_section()
    table.add_row("ρ with forgotten", *correlations, "")
    console.print(table)
    pairs = sum(not each.last for each in retention.judged)
    console.print(
        Text(
            "means, shape, head and labels are estimated lower bounds on the total variation "
            "distance between Q_t and the task's rows (--json has the 95 % confidence "
            "limits); energy is not a bound. forgotten is a[t, t] − a[T, t] in points. ρ is "
            f"Spearman's correlation over {pairs} pairs of seed and task, without the last "
            "task."
        )
    )
    if all(math.isnan(each.forgotten) for each in retention.judged):
        console.print(
            "The run stored no exact scores on its test rows, so forgetting cannot be computed."
        )


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def _figure(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "–"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %" if math.isfinite(share) else "–"
