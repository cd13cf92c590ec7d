"""Report, index and planner in a real browser: Debian's chromium, headless, opened from files.

`make browser` installs what is needed and runs these. ``CSLR_AXE`` names axe-core's ``axe.min.js``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cslr.report.comparison import write_comparison, write_index
from cslr.report.planner import write_planner
from cslr.report.run_report import write_report
from tests.report.conftest import write_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
    # Playwright's own thread closes its pipes when the interpreter ends.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install cslr[browser]"
    )
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """One of each kind of page."""
    home = tmp_path_factory.mktemp("pages")
    runs = [write_run(home / name, {"privacy.epsilon": n + 1.0}) for n, name in enumerate("ab")]
    found = {name: home / f"{name}.html" for name in ("report", "comparison", "planner")}
    write_report(runs, found["report"])
    write_comparison(runs, found["comparison"])
    write_planner(found["planner"])
    index, _ = write_index(home)
    return {**found, "index": index}


def opened(browser: Any, path: Path, **options: Any) -> tuple[Any, list[str]]:
    """The page, its console errors, and its network requests."""
    page = browser.new_page(**options)
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(f"console: {said.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on(
        "request",
        lambda asked: (
            None
            if asked.url.startswith(("file:", "data:"))
            else wrong.append(f"request: {asked.url}")
        ),
    )
    page.goto(path.as_uri())
    return page, wrong


KINDS = ("report", "comparison", "index", "planner")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_open_quietly_and_fit_the_screen(browser, pages, kind, scheme, width):
    size = {"width": width, "height": 800}
    page, wrong = opened(browser, pages[kind], color_scheme=scheme, viewport=size)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    assert wrong == []
    page.close()


@pytest.mark.parametrize("kind", ["report", "comparison"])
def test_charts_are_drawn_in_colours_of_the_page(browser, pages, kind):
    page, _ = opened(browser, pages[kind], color_scheme="dark")
    charts = page.locator("figure svg")
    assert charts.count() == {"report": 12, "comparison": 1}[kind]
    for n in range(charts.count()):
        box = charts.nth(n).bounding_box()
        assert box["width"] > 200
        assert box["height"] > 60
        strokes = charts.nth(n).evaluate(
            "svg => [...svg.querySelectorAll('path')].map(p => getComputedStyle(p).stroke)"
        )
        assert any(stroke.startswith("rgb") for stroke in strokes)
    page.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(browser, pages, kind, scheme):
    axe = os.environ.get("CSLR_AXE", "")
    if not Path(axe).is_file():
        pytest.skip("CSLR_AXE does not name axe-core's axe.min.js: npm install axe-core")
    page, _ = opened(browser, pages[kind], color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    page.add_script_tag(content=Path(axe).read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in serious] == []
    page.close()


@pytest.mark.parametrize("kind", KINDS)
def test_everything_that_can_be_used_is_reached_by_tab(browser, pages, kind):
    page, _ = opened(browser, pages[kind])
    usable = "a[href], input, select, summary, pre, .scroll"
    wanted = page.evaluate(
        f"""[...document.querySelectorAll({json.dumps(usable)})]
            .filter(each => each.checkVisibility()).length"""
    )
    assert wanted > 0
    seen = set()
    for _ in range(wanted + 1):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate(
                f"""[...document.querySelectorAll({json.dumps(usable)})]
                    .indexOf(document.activeElement)"""
            )
        )
    assert len(seen - {-1}) == wanted
    page.close()


@pytest.mark.parametrize("unit", ["person", "client"])
@pytest.mark.parametrize(
    ("count", "epsilon", "tasks", "cap", "labels"),
    [(6, 6, 4, 1, 2), (2, 3, 7, 7, 1), (14, 13, 2, 2, 5), (0, 0, 9, 3, 1), (9, 4, 4, 2, 3)],
)
def test_sliders_move_the_numbers_and_these_are_those_of_the_plan(
    browser, pages, cslr, unit, count, epsilon, tasks, cap, labels
):
    page, wrong = opened(browser, pages["planner"])
    page.select_option("#unit", unit)
    moved = {"count": count, "epsilon": epsilon, "tasks": tasks, "cap": cap, "labels": labels}
    for name, value in moved.items():
        page.locator(f"#{name}").fill(str(value))
    words = page.inner_text("#command").split()
    code, out, _ = cslr(*words[1:], "--json")
    assert (code, words[0]) == (0, "cslr")
    plan = json.loads(out)
    assert (plan["unit"], plan["cap"], plan["releases"]) == (unit, cap, tasks)
    assert page.inner_text("#sigma") == f"{plan['sigma']:.4g}"
    assert page.inner_text("#ratio") == f"{plan['signal_to_noise']:.2g}"
    assert page.inner_text("#share").startswith(f"{100 * plan['share_of_gap']:.0f} %")
    assert page.inner_text("#speakers") == f"{plan['speakers_per_task']:,.0f}"
    assert page.inner_text("#released") == plan["released"]
    assert page.inner_text("#advice") == plan["advice"]
    assert wrong == []
    page.close()


def test_an_arrow_key_moves_a_slider_and_its_number(browser, pages):
    page, _ = opened(browser, pages["planner"])
    before = page.inner_text("#sigma")
    page.locator("#epsilon").focus()
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#epsilon-shown") == "3"
    assert float(page.inner_text("#sigma")) > float(before)
    page.close()


def test_twenty_runs_open_within_two_seconds(browser, make_run, tmp_path):
    """CPU time of the page, which does not depend on the machine's load."""
    path = tmp_path / "twenty.html"
    write_report([make_run(f"run{n}") for n in range(20)], path)
    assert path.stat().st_size < 5_000_000
    page = browser.new_page()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    page.wait_for_load_state("load")
    figures = session.send("Performance.getMetrics")["metrics"]
    took = {each["name"]: each["value"] for each in figures}["TaskDuration"]
    assert page.locator("figure svg").count() == 120
    assert 0 < took < 2.0
    page.close()
