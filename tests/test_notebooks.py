"""The notebooks run from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parent.parent / "examples" / "notebooks"
SAID = {
    "first_private_stream": "ε = 4",
    "own_data": "ready: yes",
    "plan_and_ledger": "spent ε = 4 of 4",
}


def test_every_notebook_is_tested_and_none_has_stored_output():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(SAID)
    for name in SAID:
        cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        assert all(cell.get("outputs", []) == [] for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAID)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_notebook_runs(name, capsys):
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {"__name__": name}
    for cell in cells:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            exec(compile(source, f"{name}.ipynb", "exec", dont_inherit=True), names)
    assert SAID[name] in capsys.readouterr().out
