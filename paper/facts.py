"""The facts that belong to a table: streams, privacy, ledgers, seeds and command."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cslr.research.experiments.grid import Cell
from paper.figure import number
from paper.names import called, key_of
from paper.traces import Trace

__all__ = ["REBUILD", "command", "cpu_minutes", "earlier", "facts", "ran"]

REBUILD: Final = "cslr tables"
"""The command that makes every table again from the traces."""


def command(experiment: str) -> str:
    """The command that runs the unfinished cells of an experiment."""
    return f"cslr reproduce experiments/{experiment}.toml --data DIR"


def facts(experiment: str, cells: Sequence[Cell], traces: Mapping[str, Trace]) -> tuple[str, ...]:
    """Sentences on streams and metrics, the guarantee, ε by the ledgers, seeds and command."""
    return (
        *_streams(cells, traces),
        _promise(cells),
        *_ledgers(cells, traces),
        f"Seeds {_list(sorted({cell.seed for cell in cells}))}; mean ± standard deviation over "
        f"seeds (ddof = 1). {ran(cells, traces)}{earlier(cells, traces)}",
        f"Command: `{command(experiment)}`, then `{REBUILD}`.",
    )


def ran(cells: Sequence[Cell], traces: Mapping[str, Trace]) -> str:
    """A sentence on how many cells have traces."""
    there = sum(cell.name in traces for cell in cells)
    if there == len(cells):
        return f"All {there} cells ran."
    return f"{there} of {len(cells)} cells ran; what did not is marked."


def earlier(cells: Sequence[Cell], traces: Mapping[str, Trace]) -> str:
    """A sentence on how many traces are from an earlier version of the program, if any."""
    found = [traces[cell.name] for cell in cells if cell.name in traces]
    old = sum(trace.code is None for trace in found)
    return f" {old} of them by an earlier version, whose noise was drawn otherwise." if old else ""


def cpu_minutes(cells: Sequence[Cell], known: Mapping[str, Trace], of: Sequence[Cell]) -> str:
    """CPU minutes of cells, estimated from traces of the same stream and method.

    of: all cells that may have traces. With "> " if there is no record for some of the cells.
    """
    seconds: dict[tuple[str, str], list[float]] = {}
    for cell in of:
        if cell.name in known and not math.isnan(known[cell.name].cpu):
            seconds.setdefault(_kind(cell), []).append(known[cell.name].cpu)
    recorded = [seconds[_kind(cell)] for cell in cells if _kind(cell) in seconds]
    if not recorded:
        return "–"
    total = sum(sum(each) / len(each) for each in recorded) / 60
    return f"{'> ' if len(recorded) < len(cells) else ''}{total:.0f}"


def _kind(cell: Cell) -> tuple[str, str]:
    return cell.config.stream.name, cell.config.method


def _streams(cells: Sequence[Cell], traces: Mapping[str, Trace]) -> list[str]:
    """One sentence for each stream and scenario."""
    sentences = []
    for stream in dict.fromkeys(cell.config.stream.name for cell in cells):
        of_stream = [cell for cell in cells if cell.config.stream.name == stream]
        found = [traces[cell.name] for cell in of_stream if cell.name in traces]
        name = called("stream.name", stream)
        if not found:
            sentences.append(f"{name} (`{stream}`): not run.")
        for scenario in sorted({trace.scenario for trace in found}):
            own = [trace for trace in found if trace.scenario == scenario]
            first = own[0]
            sentences.append(
                f"{name} (`{stream}`): {scenario}-incremental, {len(first.tasks)} tasks, "
                f"{len(first.labels)} labels, {_list(sorted({t.clients for t in own}))} clients, "
                f"{first.metric}{_rows(of_stream)}."
            )
    return sentences


def _rows(cells: Sequence[Cell]) -> str:
    """Which rows were used, if not those on which scores are reported."""
    others = sorted({cell.config.stream.rows for cell in cells} - {"subset"})
    return f"; rows: {_list(others)}" if others else ""


def _promise(cells: Sequence[Cell]) -> str:
    privacy = [cell.config.privacy for cell in cells]
    shown = {"inf": "∞"}
    epsilons = [shown.get(key_of(e), key_of(e)) for e in sorted({each.epsilon for each in privacy})]
    return (
        f"Unit: {_unit(cells)}, (ε, δ)-DP under zero-out adjacency. "
        f"Noise for ε = {_list(epsilons)}, δ = {_list(sorted({each.delta for each in privacy}))}, "
        f"against the {_list(sorted({each.adversary for each in privacy}))}; privacy simulated."
    )


def _unit(cells: Sequence[Cell]) -> str:
    """The units of privacy of the cells."""
    units = sorted({cell.config.privacy.unit for cell in cells})
    shown = {
        "client": "one client's whole contribution (user-level)",
        "person": "the rows of one person inside a client",
    }
    return " or ".join(shown[unit] for unit in units)


def _ledgers(cells: Sequence[Cell], traces: Mapping[str, Trace]) -> list[str]:
    """Methods grouped by their ε end to end and for the replay alone, against the roster."""
    several = len({cell.config.privacy.epsilon for cell in cells}) > 1
    spent: dict[str, list[Trace]] = {}
    for cell in cells:
        if cell.name in traces:
            name = called("method", cell.config.method)
            noise = called("privacy.epsilon", key_of(cell.config.privacy.epsilon))
            spent.setdefault(f"{name} ({noise})" if several else name, []).append(traces[cell.name])
    said: dict[tuple[str, ...], list[str]] = {}
    for name, found in spent.items():
        scopes = tuple(_range(trace.value(scope) for trace in found) for scope in _SCOPES)
        said.setdefault(scopes, []).append(name)
    return [
        f"The ledgers say, against the roster: {end} end to end, {replay} for the replay release: "
        f"{'; '.join(names)}."
        for (end, replay), names in said.items()
    ]


_SCOPES: Final = ("epsilon", "replay_epsilon")


def _range(values: Iterable[float]) -> str:
    shown = list(dict.fromkeys(number(value, 2) for value in sorted(values)))
    return f"ε = {shown[0]}" if len(shown) == 1 else f"ε = {shown[0]} to {shown[-1]}"


def _list(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
