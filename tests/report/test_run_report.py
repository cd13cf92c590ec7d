"""The HTML report: its content, and that it is self-contained."""

from __future__ import annotations

import re
import shlex
from html.parser import HTMLParser

import pytest

from cslr.config import Config, load_config
from cslr.errors import RunDirectoryError
from cslr.report.run_facts import command_of, read_facts
from cslr.report.run_report import report_page, write_report

VOID = {"meta", "link", "input", "br", "img"}


class Balanced(HTMLParser):
    """Fails on an element that is closed and not open; collects ids and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "action"):
                self.addresses.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(text: str) -> Balanced:
    page = Balanced()
    page.feed(text)
    assert page.open == []
    return page


def test_a_page_is_well_formed_and_fetches_nothing(make_run):
    page = parsed(report_page([read_facts(make_run("a")), read_facts(make_run("b"))]))
    assert len(page.ids) == len(set(page.ids))
    assert page.addresses
    assert all(address.startswith(("#", "data:")) for address in page.addresses)


def test_the_verdict_and_the_promise_are_said_in_words(make_run):
    text = report_page([read_facts(make_run())])
    verdict = "+5.0 over zero-shot, 33 % of the gap to pooled, ε = 4 for a person (simulated)"
    assert f'<p class="verdict above">{verdict}</p>' in text
    assert "one person inside a client; 188 are registered" in text
    assert "(ε, δ)-DP with ε = 4 against an adversary who knows who took part" in text
    for who, epsilon in (("public", "4"), ("roster", "4"), ("server", "∞")):
        row = rf'<th scope="row">{who}</th><td class="words">[^<]+</td><td class="words">{epsilon}<'
        assert re.search(row, text)
    assert "Nobody was protected by this run." in text


def test_names_are_text_and_never_markup(make_run):
    text = report_page([read_facts(make_run("a<b>"))])
    assert "<joints>" not in text
    assert "skin &amp; &lt;joints&gt;" in text
    assert "Run a&lt;b&gt;" in text


def test_charts_are_coloured_by_the_page(make_run):
    text = report_page([read_facts(make_run())])
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 6
    for svg in drawings:
        assert 'role="img" aria-label="' in svg
        assert "var(--text)" in svg
        assert not re.search(r"#0000[0-9a-f]{2}", svg)
        assert not re.search(r'<svg[^>]* width="', svg)


def test_the_budget_is_the_ledgers(make_run):
    facts = read_facts(make_run())
    assert facts.spending is not None
    assert facts.spending.groups == ("task 1", "task 2")
    assert 0 < facts.spending.after[0] < facts.spending.after[1]
    assert f"{facts.spending.after[1]:.3g}" in report_page([facts])


def test_figures_that_are_not_stored_are_not_in_the_page(make_run):
    nothing = [[None, None]] * 3
    shown = {"evaluate": "shown", "evaluated": None, "aa": None, "matrix": nothing}
    text = report_page([read_facts(make_run(**shown, yardsticks={}))])
    assert "scores were shown and not stored" in text
    assert "Score matrix" not in text
    assert "80.0" not in text


def test_a_noisy_count_is_shown_with_its_error(make_run):
    counted = {
        "tasks": [{"task": "heart", "accuracy": 71.5, "standard_error": 2.5}],
        "aa": 71.5,
        "aa_standard_error": 2.5,
    }
    nothing = {"aa": None, "matrix": [[None, None]] * 3, "yardsticks": {}}
    text = report_page(
        [read_facts(make_run(evaluate="private", private_evaluation=counted, **nothing))]
    )
    assert "noisy accuracy 71.5 %" in text
    assert "From a noisy count" in text


def test_a_run_without_picture_or_ledger_still_has_a_report(make_run):
    run = make_run()
    for file in ("picture.safetensors", "clouds.safetensors", "ledger.jsonl", "ledger.head"):
        (run / "seed-13" / file).unlink()
    text = report_page([read_facts(run)])
    assert "The ledger of this run is not where its configuration says." in text
    assert "Map of the public space" not in text


def test_an_unfinished_run_and_a_damaged_picture_are_messages(make_run):
    run = make_run()
    (run / "seed-13" / "picture.safetensors").write_bytes(b"no arrays")
    with pytest.raises(RunDirectoryError, match=r"picture\.safetensors is damaged"):
        read_facts(run)
    (run / "result.json").unlink()
    with pytest.raises(RunDirectoryError, match="is not finished"):
        read_facts(run)


def test_twenty_runs_are_below_five_megabytes(make_run, tmp_path):
    runs = [make_run(f"run{n}") for n in range(20)]
    write_report(runs[:2], tmp_path / "two.html")
    write_report(runs[:1], tmp_path / "one.html")
    one, two = ((tmp_path / name).stat().st_size for name in ("one.html", "two.html"))
    assert one + 19 * (two - one) < 5_000_000


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"privacy.epsilon": 4.0, "seeds": [13, 17], "replay.release": "list"},
        {"stream.name": "desk", "privacy.unit": "person", "privacy.epsilon": float("inf")},
    ],
)
def test_the_command_of_a_report_makes_the_same_configuration(settings, cslr, monkeypatch):
    from cslr.cli import run

    config = load_config(None, settings)
    words = shlex.split(command_of(config))
    assert words[:2] == ["cslr", "run"]
    made = []
    monkeypatch.setattr(run, "_run", lambda settled, *rest, **more: made.append(settled.given))
    code, _, err = cslr(*words[1:])
    assert code == 0, err
    assert made == [config]


def test_the_command_of_a_report_uses_the_flags_that_people_type():
    assert command_of(Config()) == "cslr run --unit client"
    changed = {"privacy.epsilon": 4.0, "privacy.unit": "person", "seeds": [13, 17]}
    command = command_of(load_config(None, {**changed, "replay.release": "list"}))
    assert "--epsilon 4.0" in command
    assert "--unit person" in command
    assert "--seeds 13,17" in command
    assert "--set replay.release=list" in command
