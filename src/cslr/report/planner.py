"""The planner page: sliders whose numbers are those of ``cslr plan``.

Against the roster σ = √cap / μ(ε, δ), and μ is a number for each position of the two sliders: it is
computed here by ``calibrate`` and written into the page, so the page needs no accountant of its
own. Everything else is arithmetic.
"""

from __future__ import annotations

import json
import math
import re
from html import escape
from pathlib import Path
from typing import Any, Final

from cslr.config import ReplayConfig
from cslr.files import write_atomic
from cslr.privacy.forecast import forecast
from cslr.privacy.plan import Budget, Plan, Unit, calibrate
from cslr.report.page import page, paragraph
from cslr.report.planner_script import SCRIPT

__all__ = ["planner_data", "write_planner"]

_EPSILONS: Final = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0)
_DELTAS: Final = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
_COUNTS: Final = tuple(
    n * 10**power for power in range(1, 6) for n in (1, 2, 5)
)  # 10, 20, 50, ... 500,000
_UNITS: Final[tuple[Unit, ...]] = ("client", "person")


def write_planner(path: Path) -> None:
    """Write the page."""
    write_atomic(path, planner_page().encode())


def planner_data() -> dict[str, Any]:
    """Everything the page computes with."""
    return {
        "epsilons": _EPSILONS,
        "deltas": _DELTAS,
        "deltaNames": [f"{delta:g}" for delta in _DELTAS],
        "counts": _COUNTS,
        "sigmas": [[_sigma(epsilon, delta) for delta in _DELTAS] for epsilon in _EPSILONS],
        "directions": ReplayConfig().directions,
        "advice": {unit: _advice(unit) for unit in _UNITS},
    }


def _sigma(epsilon: float, delta: float) -> float:
    """σ of one release; that of a cap of k is √k times it."""
    return _one(epsilon, delta).sigma or math.nan


def _one(epsilon: float, delta: float, unit: Unit = "client") -> Plan:
    return calibrate(Budget(epsilon, delta, unit=unit), releases=1)


def _advice(unit: Unit) -> list[tuple[float, str]]:
    """(least ratio, advice) from good to bad; # stands for the number of units needed."""
    plan = _one(1.0, 1e-5, unit)
    found = []
    for least in (3.0, 0.5, 0.1, 0.0):
        dimension = 1_000_000
        noise = (plan.sigma or math.nan) * math.sqrt(dimension)
        said = forecast(plan, math.ceil(max(least, 0.01) * 1.01 * noise), dimension).advice
        found.append((least, re.sub(r"About \d+ ", "About # ", said)))
    return found


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
            "What noise a promise needs and whether it is worth starting. No data are read and "
            "nothing is spent; the numbers are those of the command below."
        )
        + '<form class="planner" aria-label="Plan"><p><label for="unit">Unit of privacy</label> '
        + '<select id="unit"><option value="person">person</option>'
        + '<option value="client">client</option></select></p>'
        + f"{fields}</form>"
        + '<div role="status" aria-live="polite"><p class="verdict" id="advice"></p>'
        + '<dl class="numbers"><dt>Noise multiplier σ</dt><dd id="sigma"></dd>'
        + '<dt>Signal to noise of a mode</dt><dd id="ratio"></dd>'
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
.numbers { display: grid; grid-template-columns: auto 1fr; gap: .2rem 1.2rem; }
.numbers dd { margin: 0; font-weight: 650; } .bad { color: var(--bad); }
"""
