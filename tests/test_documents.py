"""What the documents say is what the project does."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cslr
from cslr.cli import app
from cslr.privacy.accounting import gaussian_epsilon

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(path):
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "ε = 4.000" in done.stdout


def test_python_in_the_readme_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    sigma, epsilon = map(float, capsys.readouterr().out.split())
    assert sigma == pytest.approx(2.16, abs=0.01)
    assert epsilon == pytest.approx(4.0, rel=1e-6)


def test_commands_in_the_readme_exist():
    """Every flag of every `cslr …` line is one the program knows."""
    lines = re.findall(r"^(?:`)?(cslr [^`\n#]+)", README, re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        verb, *arguments = shlex.split(line)[1:]
        page = CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "200"})
        assert page.exit_code == 0
        for flag in (word for word in arguments if word.startswith("--")):
            assert flag in page.output, f"{line}: {flag}"


def test_the_two_commands_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test", "results"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_map_of_the_algorithm_names_things_that_exist():
    page = (ROOT / "docs" / "algorithm.md").read_text(encoding="utf-8")
    homes = {
        "step1_list": "cslr.protocol.step1_list",
        "step2_sign": "cslr.protocol.step2_sign",
        "step3_match": "cslr.protocol.step3_match",
        "step5_rehearse": "cslr.protocol.step5_rehearse",
        "contribution": "cslr.protocol.step4_aggregate.contribution",
        "estimate": "cslr.protocol.step4_aggregate.estimate",
        "effects": "cslr.protocol.step4_aggregate.effects",
        "targets": "cslr.protocol.targets",
        "tags": "cslr.protocol.tags",
        "grid": "cslr.privacy.grid",
        "mechanism": "cslr.privacy.mechanism",
        "secure_sum": "cslr.privacy.secure_sum",
    }
    named = re.findall(r"`(\w+)\.(\w+)`", page)
    found = [(home, name) for home, name in named if home in homes]
    assert len(found) >= 8
    for home, name in found:
        assert hasattr(importlib.import_module(homes[home]), name), f"{home}.{name}"


def test_public_names_are_exactly_these_and_all_load():
    assert sorted(cslr.__all__) == sorted(cslr._HOME_OF)
    for name in cslr.__all__:
        assert getattr(cslr, name) is not None
    with pytest.raises(AttributeError):
        _ = cslr.nonsense


def test_results_in_the_readme_were_written_by_the_command():
    block = README.split("<!-- results:begin")[1].split("<!-- results:end -->")[0]
    assert block.count("\n| 20 |") == 8
    assert "zero-shot" in block


def test_how_to_read_the_results_agrees_with_the_results():
    """The prose under the table is typed, so it must go on being true of what is measured."""
    rows = re.findall(r"\| (\d+) \| ([\d.∞]+) \| (\w+) \| \*\*([\d.]+)\*\*", README)
    accuracy = {(int(n), epsilon, prior): float(aa) for n, epsilon, prior, aa in rows}
    alone = float(re.findall(r"the label prior alone \(public, ε = 0\) (\d+\.\d)", README)[0])
    assert accuracy[20, "1.00", "labels"] <= alone + 0.3  # "add nothing to it"
    assert accuracy[20, "4.00", "labels"] > alone + 0.5  # "begin to pay"
    assert accuracy[100, "4.00", "labels"] > alone + 2.0  # "do so clearly"


def test_the_translation_to_replace_one_is_what_the_accountant_says():
    page = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    stated = re.findall(r"about ([\d.]+) / ([\d.]+) / ([\d.]+)", page)[0]
    for epsilon, other in zip((1.0, 4.0, 8.0), stated, strict=True):
        sigma = cslr.calibrate(cslr.Budget(epsilon), releases=1).sigma
        assert gaussian_epsilon(2 / sigma, 1e-5) == pytest.approx(float(other), abs=0.06)
