"""The docs site: its generated pages are up to date, its navigation is whole, it loads nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]


def test_generated_pages_are_what_the_program_says():
    """`make docs` writes them again."""
    program = (
        "import runpy\n"
        f"made = runpy.run_path({str(ROOT / 'docs' / 'tools' / 'reference.py')!r})['pages']()\n"
        "for path, text in made.items():\n"
        "    print(path.name, path.read_text(encoding='utf-8') == text)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["cli.md True", "settings.md True", "api.md True"], (
        done.stderr
    )


def test_the_navigation_has_every_page_once():
    named = re.findall(r"[\w-]+\.md", NAVIGATION)
    assert sorted(named) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_every_command_has_an_example_and_every_exit_code_is_explained():
    from typer.main import get_command

    from cslr.cli.main import app

    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    parts = re.split(r"^## `", page, flags=re.MULTILINE)[1:]
    assert len(parts) > 15
    assert [part.split("`")[0] for part in parts if "Example: `cslr " not in part] == []
    assert {"report", "runs", "doctor"} <= set(get_command(app).commands)
    codes = re.findall(r"^\| (\d+) \|", page, re.MULTILINE)
    assert codes == ["0", "1", "2", "3", "130"]


@pytest.mark.slow
def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install cslr[docs]")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.glob("*.html"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(script|img|iframe)[^>]* src="(https?:)?//', text), page.name
        assert not re.search(r'<link[^>]* href="https?://', text), page.name
