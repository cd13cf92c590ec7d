"""Writes the pictures of README and docs: terminal.svg, report.png and, with data, story.png.

`make pictures` runs it. The report's picture needs Debian's chromium and `pip install
"cslr[browser]"`; the story needs AG-News (`make pictures DATA=DIR`).
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from cslr.cli.show.run import print_next, print_summary
from cslr.data.streams import load_stream
from cslr.report.story import write_story
from cslr.runs.directory import RunDirectory, read_config
from cslr.runs.results import collect

DOCS = Path(__file__).resolve().parent.parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
SHOWN = {"width": 1180, "height": 1120}
SEEDS = "13,17,19,23,29"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="Directory of the data sets, for the story.")
    data = parser.parse_args().data
    with TemporaryDirectory() as folder:
        home = Path(folder)
        _cslr("--run-dir", "runs/demo", home=home)
        (DOCS / "terminal.svg").write_text(terminal(home), encoding="utf-8")
        screenshot(home / "runs" / "demo" / "report.html", DOCS / "report.png")
        if data is not None:
            runs = [story_run(unit, data, home) for unit in ("person", "client")]
            write_story(runs, DOCS / "story.png")


def _cslr(*words: str, home: Path) -> None:
    subprocess.run([sys.executable, "-m", "cslr", "run", "--quiet", *words], cwd=home, check=True)


def story_run(unit: str, data: Path, home: Path) -> Path:
    """AG-News at ε = 4, the seeds of the tables."""
    options = ["--stream", "ag-news", "--data", str(data.resolve()), "--epsilon", "4"]
    _cslr(*options, "--unit", unit, "--seeds", SEEDS, "--run-dir", unit, home=home)
    return home / unit


def terminal(home: Path) -> str:
    """What `cslr run` prints, as a picture without fonts from elsewhere."""
    run = Path("runs/demo")
    config = read_config(home / run)
    result = collect(config, RunDirectory(home / run, config), load_stream("clinic", None))
    result = replace(result, run_dir=str(run))
    console = Console(record=True, width=92, force_terminal=True, file=io.StringIO())
    console.print("[bold]$ cslr run[/bold]")
    print_summary(result, console)
    print_next(result, console)
    svg = console.export_svg(title="cslr run")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def screenshot(page: Path, picture: Path) -> None:
    """The top of a report, light."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        shown = browser.new_page(viewport=SHOWN, color_scheme="light")
        shown.goto(page.as_uri())
        shown.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main()
