"""The planner page: sliders whose numbers are those of ``cslr plan``.

Against the roster σ = √cap / μ(ε, δ), where μ is one number for each position of the sliders of ε
and δ. It is computed here by ``calibrate`` and written into the page, so the page needs no
accountant. The forecast of ``methods.outlook`` is arithmetic, which the page repeats in JavaScript
with the same constants.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any, Final

from cslr.files import write_atomic
from cslr.methods import outlook
from cslr.privacy.plan import Budget, Unit, calibrate
from cslr.protocol.step4_aggregate import contribution
from cslr.report.planner_script import SCRIPT
from cslr.report.run_report import page, paragraph

__all__ = ["planner_data", "write_planner"]

_EPSILONS: Final = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0)
_DELTAS: Final = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
_COUNTS: Final = tuple(
    n * 10**power for power in range(1, 6) for n in (1, 2, 5)
)  # 10, 20, 50, ... 500,000
_DIRECTIONS: Final = outlook.Federated.dimension
_UNITS: Final[tuple[Unit, ...]] = ("client", "person")


def write_planner(path: Path) -> None:
    """Write the page."""
    write_atomic(path, planner_page().encode())


def planner_data() -> dict[str, Any]:
    """All constants that the page's script uses."""
    return {
        "epsilons": _EPSILONS,
        "deltas": _DELTAS,
        "deltaNames": [f"{delta:g}" for delta in _DELTAS],
        "counts": _COUNTS,
        "sigmas": [[_sigma(epsilon, delta) for delta in _DELTAS] for epsilon in _EPSILONS],
        "spread": outlook.usual_spread(_DIRECTIONS).tolist(),
        "most": outlook.MOST,
        "half": outlook.HALF,
        "little": outlook.LITTLE,
        "off": outlook.OFF,
        "mostRows": contribution.MOST_ROWS,
        "many": contribution.MANY,
        "mostNoise": contribution.MOST_NOISE,
        "leastTied": contribution.LEAST_TIED,
        "tiedNorm": contribution.TIED_NORM,
        "rows": {unit: _federated(unit).rows_per_unit for unit in _UNITS},
        "advice": {unit: _advice(unit) for unit in _UNITS},
        "released": {"tied": _released(777), "plain": _released(0)},
    }


def _sigma(epsilon: float, delta: float) -> float:
    """σ for a cap of one release; for a cap of k it is √k times as large."""
    return calibrate(Budget(epsilon, delta), releases=1).sigma or math.nan


def _federated(unit: Unit) -> outlook.Federated:
    """The defaults of ``cslr plan`` for this unit of privacy."""
    rows = 1 if unit == "person" else 8
    return outlook.Federated(Budget(1.0, unit=unit), 1000, 4, rows_per_unit=rows)


def _advice(unit: Unit) -> list[tuple[float, str]]:
    """(least share, advice) from good to bad; # stands for the number in it."""
    base = outlook.outlook_of(_federated(unit))
    found = []
    for least in (outlook.PART, outlook.LITTLE, outlook.NOTHING, 0.0):
        text = replace(base, share=least + 0.01).verdict()
        found.append((least, re.sub(r"(about|About) [\d,]+ ", r"\1 # ", text)))
    return found


def _released(tied: int) -> str:
    """What is released about a task, in words; # stands for the directions of a tied matrix."""
    base = outlook.outlook_of(_federated("person"))
    text = replace(base, resolution=replace(base.resolution, tied=tied)).releases()
    return text.replace("777", "#")


def planner_page() -> str:
    """The document."""
    data = planner_data()
    # JSON inside a script element must not close it.
    plain = json.dumps(data).replace("</", "<\\/")
    sliders = [
        ("count", "Number of units", len(_COUNTS) - 1, _COUNTS.index(1000)),
        ("epsilon", "ε", len(_EPSILONS) - 1, _EPSILONS.index(4.0)),
        ("delta", "δ", len(_DELTAS) - 1, _DELTAS.index(1e-5)),
        ("tasks", "Tasks, one release each", 20, 4),
        ("cap", "Tasks a unit contributes to (cap)", 20, 1),
        ("labels", "Labels of a task", 20, 2),
    ]
    fields = "".join(_slider(*slider) for slider in sliders)
    body = (
        paragraph(
            "The noise that a privacy target needs, and a forecast of the utility. No data are "
            "read and no budget is spent; the command below computes the same numbers."
        )
        + '<form class="planner" aria-label="Plan"><p><label for="unit">Unit of privacy</label> '
        + '<select id="unit"><option value="person">person</option>'
        + '<option value="client">client</option></select></p>'
        + f"{fields}</form>"
        + '<div role="status" aria-live="polite"><p class="verdict" id="advice"></p>'
        + '<dl class="numbers"><dt>Noise multiplier σ</dt><dd id="sigma"></dd>'
        + '<dt>Forecast share of the gap</dt><dd><span id="share"></span><span class="gauge" '
        + 'aria-hidden="true"><span id="band"></span><span id="mark"></span></span></dd>'
        + '<dt>Signal to noise of a mode</dt><dd id="ratio"></dd>'
        + '<dt>Units that contribute to a task</dt><dd id="speakers"></dd>'
        + '<dt>Each release</dt><dd id="released"></dd></dl>'
        + '<p id="warning" class="bad"></p></div>'
        + '<h2>The same on the command line</h2><pre tabindex="0" id="command"></pre>'
        + f"<style>{_STYLE}</style>"
    )
    return page("Plan a budget", body, f"const DATA = {plain};\n{SCRIPT}")


def _slider(name: str, text: str, most: int, start: int) -> str:
    least = 1 if most == 20 else 0
    return (
        f'<p><label for="{name}">{escape(text)}</label> <output id="{name}-shown" for="{name}">'
        f'</output><input type="range" id="{name}" min="{least}" max="{most}" value="{start}"></p>'
    )


_STYLE: Final = """
.planner { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 18rem), 1fr));
  gap: .2rem 2rem; background: var(--panel); padding: .6rem 1rem; border-radius: .5rem; }
.planner output { float: right; font-weight: 650; font-variant-numeric: tabular-nums; }
.planner input[type=range] { width: 100%; height: 2rem; accent-color: var(--method); }
.planner select { font: inherit; padding: .3rem; width: 100%; }
.gauge { display: block; position: relative; height: .7rem; width: min(20rem, 100%);
  background: var(--panel); border: 1px solid var(--line); margin: .2rem 0 .4rem; }
.gauge span { position: absolute; top: 0; bottom: 0; }
#band { background: var(--method); opacity: .35; } #mark { width: 3px; background: var(--method); }
.numbers { display: grid; grid-template-columns: auto 1fr; gap: .2rem 1.2rem; }
.numbers dd { margin: 0; font-weight: 650; }
@media (max-width: 34rem) { .numbers { grid-template-columns: 1fr; } .numbers dt { color:
  var(--muted); margin-top: .3rem; } }
.bad { color: var(--bad); }
"""
