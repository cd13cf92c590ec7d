"""What the documents say is what the project does."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import pkgutil
import re
import runpy
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from typer.main import get_command

import cslr
from cslr.cli.main import app
from cslr.config import Config
from cslr.data.streams import SCENARIOS, STREAMS, load_stream
from cslr.data.streams.data_directory import Sizes
from cslr.methods.method import Method
from cslr.methods.registry import METHODS
from cslr.numerics.mixture import Gaussians, Mixture
from cslr.privacy.accounting import gaussian_epsilon
from cslr.protocol.head import Family
from cslr.protocol.step3_match import MATCHERS, match
from cslr.protocol.step4_aggregate.mixed_model import USUAL
from cslr.protocol.step5_rehearse import OVERLAP, TRUSTED
from cslr.text.encoders import embed
from paper.readme import BEGIN, END

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", CONTRIBUTING, *(ROOT / "docs").glob("*.md")]
PAGES = [*sorted(PAGES), *sorted((ROOT / "examples").rglob("*.md"))]
SAID_BY_EXAMPLES = {
    "arrays.py": "ε = 4.000 at δ = 1e-05, privacy enforced",
    "private_round.py": "ε = 4.000",
}
EMBEDDED = ("clinic", "desk", "ward")
MADE_OF = {
    "ag-news-pairs": "ag-news",
    "ag-news-small": "ag-news",
    "ag-news-pairs-small": "ag-news-pairs",
    "amazon-products": "amazon",
    "multiwoz-services": "multiwoz",
}
"""Streams that are another's rows, told otherwise."""


@pytest.mark.parametrize("name", SAID_BY_EXAMPLES)
def test_examples_run(name, capsys):
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert SAID_BY_EXAMPLES[name] in capsys.readouterr().out


def test_every_example_is_run():
    elsewhere = {"anchorless.py"}  # by the test of the proposition that it shows
    examples = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert examples == {*SAID_BY_EXAMPLES, *elsewhere}


def test_python_in_the_readme_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    *labels, epsilon = capsys.readouterr().out.split()
    assert "".join(labels) == "['0''1''2''3']"
    assert float(epsilon) == pytest.approx(4.0, rel=1e-6)


def test_python_in_the_page_about_python_runs(cache, tmp_path, monkeypatch, capsys):
    """All blocks, one after the other, as a reader would try them."""
    monkeypatch.setenv("CSLR_CACHE_DIR", str(cache))
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "docs/python.md", "exec", dont_inherit=True), names)
    shown = capsys.readouterr().out.splitlines()
    assert "epsilon=4, delta=1e-05, adversary=roster, privacy=enforced" in shown[0]
    assert shown[1:3] == ["BudgetExceeded", "['joints']"]
    accuracy, epsilon = map(float, shown[3].split())
    assert accuracy > 0.9
    assert epsilon == pytest.approx(4.0, rel=1e-6)
    assert float(shown[-1].split()[-1]) == pytest.approx(1.0, rel=1e-6)
    assert names["study"].privacy == "simulated"


def _contributed(name: str) -> Any:
    """What the one code block of CONTRIBUTING.md that defines ``name`` makes of it."""
    page = CONTRIBUTING.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (block,) = (
        each for each in blocks if re.search(rf"^(def |class )?{name}\b", each, re.MULTILINE)
    )
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(block, "a block of CONTRIBUTING.md", "exec", dont_inherit=True), names)
    return names[name]


@pytest.fixture
def contributed_method(monkeypatch):
    """The method of CONTRIBUTING.md, added by one line."""
    method = _contributed("METHOD")
    monkeypatch.setitem(METHODS, "dp-centroids", method)
    return method


def test_the_method_in_contributing_learns_all_tasks(contributed_method, make_context, world):
    for family in ("classification", "intents", "tagging"):
        setting = make_context(method="dp-centroids", family=family)
        setting.keep.kept.clear()
        first, *_, last = [stage() for stage in contributed_method.stages(setting)]
        np.testing.assert_array_equal(first.scores(world.test_z), -np.inf)
        best = last.scores(world.test_z).argmax(axis=1)
        labels = setting.family.label_of_output()[best]
        assert np.mean(labels == world.test_labels) > 0.95


def test_the_method_in_contributing_costs_what_was_promised(
    contributed_method, make_context, world, drawer
):
    setting = make_context(method="dp-centroids", epsilon=4.0)
    *_, last = contributed_method.stages(setting)
    assert [charge.part for charge in setting.ledger.charges] == ["head", "head"]
    assert setting.ledger.epsilon("end_to_end", "roster") == pytest.approx(4.0, abs=1e-6)
    *_, again = contributed_method.stages(setting)  # after an interruption
    assert len(setting.ledger.charges) == 2
    z = world.test_z
    np.testing.assert_array_equal(last().scores(z), again().scores(z))
    drawer.kept.clear()
    *_, open_ = contributed_method.stages(make_context(method="dp-centroids"))
    assert not np.allclose(last().scores(z), open_().scores(z), atol=1e-3)  # noise there is


def test_the_matcher_in_contributing_names_entries_by_their_direction(
    make_context, world, monkeypatch
):
    monkeypatch.setitem(MATCHERS, "direction", _contributed("_by_direction"))
    prototypes = Gaussians(np.diag([0.2, 1.0]), np.ones((2, 2)))
    means = np.array([[[0.1, 0.9], [0.3, 0.2], [5.0, 0.1]]])
    lists = Mixture(np.full((1, 3), 1 / 3), Gaussians(means, np.ones_like(means)))
    anchors, rngs = np.zeros((4, 2)), [np.random.default_rng(1)]
    assert match(lists, prototypes, anchors, "direction", rngs).tolist() == [[1, 0, 0]]
    setting = make_context(sub_modes=2)
    replay = setting.replay.model_copy(update={"matcher": "direction"})
    *_, last = METHODS["cslr"].stages(replace(setting, replay=replay))
    assert np.mean(last().scores(world.test_z).argmax(axis=1) == world.test_labels) > 0.95


def test_the_encoder_in_contributing_embeds_texts_one_by_one():
    encoder = _contributed("LetterCounts")()
    texts = ["A knee hurts.", "knees", "abba"]
    together = embed(texts, encoder, cache=None)
    alone = np.concatenate([embed([text], encoder, cache=None) for text in texts])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, rtol=1e-6)
    assert together[2, :3] == pytest.approx([0.5**0.5, 0.5**0.5, 0.0])


def test_the_map_in_contributing_names_every_room():
    page = CONTRIBUTING.read_text(encoding="utf-8")
    source = ROOT / "src" / "cslr"
    rooms = {path.parent.name for path in source.glob("*/__init__.py")}
    assert {room for room in rooms if f"  {room}/ " not in page} == set()
    block = page.split("```")[1]
    assert len(block.splitlines()) <= 24


def test_the_lines_in_contributing_are_those_of_the_dictionaries():
    page = CONTRIBUTING.read_text(encoding="utf-8")
    for line, place in (
        ('"dp-centroids": dp_centroids.METHOD,', "methods/registry.py"),
        ('"direction": _by_direction,', "protocol/step3_match.py"),
    ):
        assert f"`{line}`" in page
        source = (ROOT / "src" / "cslr" / place).read_text(encoding="utf-8")
        shape = re.escape(line).replace("dp_centroids", r"\w+").replace("_by_direction", r"_\w+")
        shape = re.sub(r'"[\w\\-]+"', lambda _: r'"[a-z-]+"', shape)
        assert re.search(rf"^    {shape}$", source, re.MULTILINE), f"{place}: {line}"


def _command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The verb that words after ``cslr`` name, and the words after it."""
    command = get_command(app)
    while isinstance(command, click.Group):
        usual = {"ledger": "show", "runs": "list"}.get(str(command.name))
        if usual is not None and not {*words[:1]} & command.commands.keys():
            words = [usual, *words]
        assert words, f"{command.name} needs a verb"
        assert words[0] in command.commands, f"no verb {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def _flags(command: click.Command) -> set[str]:
    """Every flag of a command, and of those below it."""
    flags = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return flags.union(*map(_flags, below))


def _command_lines(page: str) -> list[str]:
    """``cslr …`` as a line of a block or as a span of code."""
    return re.findall(r"(?:^|`)(cslr [a-z][^`\n]*)", page, re.MULTILINE)


def test_commands_in_the_documents_exist():
    """Every verb is one, and every flag beside it is one of the verb's own."""
    for path in PAGES:
        for line in _command_lines(path.read_text(encoding="utf-8")):
            command, words = _command(shlex.split(line, comments=True)[1:])
            for flag in (word for word in words if word.startswith("--")):
                assert flag in {*_flags(command), "--help"}, f"{path}: {line}: {flag}"


def test_options_in_the_documents_exist():
    """Also where an option stands alone in a sentence."""
    known = _flags(get_command(app))
    for path in PAGES:
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", path.read_text(encoding="utf-8")))
        assert named <= {*known, "--help"}, f"{path}: {named - known}"


def test_the_documents_name_every_verb():
    """So that the two tests above cannot pass on pages that name none."""
    lines = [line for path in PAGES for line in _command_lines(path.read_text(encoding="utf-8"))]
    named = {_command(shlex.split(line, comments=True)[1:])[0].name for line in lines}
    of_data, of_theory = {"init", "check", "fetch"}, {"anchors", "quality"}
    of_experiments = {"reproduce", "tables"}
    of_ledger, others = {"show", "verify", "moved"}, {"run", "upgrade", "predict", "plan", "audit"}
    of_federation = {"join", "serve", "node", "status", "down", "try"}
    of_runs, of_pages = {"list", "compare", "delete"}, {"report", "doctor"}
    verbs = {*others, *of_ledger, *of_data, *of_theory, *of_experiments, *of_federation}
    verbs |= {*of_runs, *of_pages}
    assert named == verbs
    assert verbs == _verbs(get_command(app))


def _verbs(command: click.Command) -> set[str]:
    """All that can be asked of the program."""
    if not isinstance(command, click.Group):
        return {str(command.name)}
    return set().union(*map(_verbs, command.commands.values()))


def test_settings_in_the_documents_exist():
    setting = re.compile(r"(?:`|--set )(stream|privacy|replay|head)\.(\w+)")
    for path in PAGES:
        for section, name in setting.findall(path.read_text(encoding="utf-8")):
            known = type(getattr(Config(), section)).model_fields
            assert name in known, f"{path}: {section}.{name}"


def _rows_of_methods() -> dict[str, list[str]]:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| method \|.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    rows = re.findall(r"^\| `([a-z-]+)` \|(.+)\|$", table, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


def test_the_table_of_methods_names_every_method():
    assert set(_rows_of_methods()) == set(METHODS)


def _releases(method: Method) -> str:
    if method.reads != "privately":
        return "none"
    schedule = method.schedule(method.settled(Config()))
    counts = ((schedule.replay, "sum"), (schedule.lists, "list"), (schedule.head, "update"))
    return ", ".join(f"{count} {what}{'s' * (count > 1)}" for count, what in counts if count)


@pytest.mark.parametrize("name", METHODS)
def test_the_table_of_methods_says_what_each_costs_and_where_it_is(name):
    method = METHODS[name]
    _, releases, replay, end_to_end, file = _rows_of_methods()[name]
    assert releases == _releases(method)
    assert replay == ("ε" if re.search("sum|list", releases) else "0")
    openly = method.reads == "openly" or method.settled(Config()).head.kind == "federated"
    assert end_to_end == ("∞" if openly else "0" if method.reads == "nothing" else "ε")
    module = pkgutil.resolve_name(
        f"cslr.methods.{file.strip('`').removesuffix('.py').replace('/', '.')}"
    )
    # FedCIL and FedTA are folders that are imported when they are asked for.
    assert any(value is method for value in vars(module).values()) or hasattr(module, "stages")


def test_the_page_of_results_has_a_place_for_the_table_of_methods():
    lines = RESULTS.splitlines()
    assert lines.count(BEGIN) == lines.count(END) == 1
    assert lines.index(BEGIN) < lines.index(END)


def test_the_readme_fits_two_hundred_lines():
    assert len(README.splitlines()) <= 200


def _declared(name: str) -> dict[str, Any]:
    """What a loader declares in words of its own, whether or not its data are here."""
    tree = ast.parse(inspect.getsource(STREAMS[name]))
    made_by = "replace" if name in MADE_OF else "Stream"
    (call,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == made_by
    )
    return (_declared(MADE_OF[name]) if name in MADE_OF else {}) | {
        str(keyword.arg): ast.literal_eval(keyword.value)
        for keyword in call.keywords
        if keyword.arg in ("name", "scenarios", "clients", "alpha", "family", "partition", "cap")
    }


def _rows_of_streams(page: str) -> dict[str, list[str]]:
    """The rows of the table of streams: the cells after the name, by name."""
    (table,) = re.findall(r"^\| stream \|.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    rows = re.findall(r"^\| `([a-z-]+)`[^|]*\|(.+)\|$", table, re.MULTILINE)
    assert len(dict(rows)) == len(rows)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


@pytest.mark.parametrize("name", EMBEDDED)
def test_what_a_loader_declares_is_what_its_stream_has(name):
    stream = load_stream(name, None)
    for field, value in _declared(name).items():
        assert getattr(stream, field) == value


def test_the_tables_of_streams_name_every_stream_in_order():
    for page in ("docs/streams.md", "docs/metrics.md"):
        rows = _rows_of_streams((ROOT / page).read_text(encoding="utf-8"))
        assert list(rows) == list(STREAMS), page


@pytest.mark.parametrize("name", STREAMS)
def test_the_tables_say_which_scenarios_a_stream_has(name):
    """A scenario is offered or refused, and the one in front is the headline."""
    declared = _declared(name)["scenarios"]
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    offered, refused = _rows_of_streams(page)[name]
    assert tuple(offered.split(", ")) == declared
    assert refused == ", ".join(other for other in SCENARIOS if other not in declared)


@pytest.mark.parametrize("name", STREAMS)
def test_the_table_says_who_holds_a_stream(name):
    declared = _declared(name)
    page = (ROOT / "docs" / "streams.md").read_text(encoding="utf-8")
    family, _, _, clients, partition = _rows_of_streams(page)[name]
    assert family == declared.get("family", "classification")
    assert int(clients) == declared["clients"]
    within = declared.get("partition") == "task"
    assert declared.get("cap") == (1 if within else None)
    assert partition == ("one task each" if within else f"Dirichlet {declared['alpha']:g}")
    assert f"\n## {name}\n" in page


@pytest.mark.parametrize("name", EMBEDDED)
def test_the_table_counts_tasks_and_labels_of_embedded_streams(name):
    page = (ROOT / "docs" / "streams.md").read_text(encoding="utf-8")
    _, tasks, labels, _, _ = _rows_of_streams(page)[name]
    stream = load_stream(name, None)
    assert int(tasks) == len(stream.tasks)
    types = f"O and {len(stream.labels) - 1} types"
    assert labels == (types if stream.family == "tagging" else str(len(stream.labels)))


@pytest.mark.parametrize(("name", "other"), MADE_OF.items())
def test_a_stream_made_of_another_says_so(name, other):
    page = (ROOT / "docs" / "streams.md").read_text(encoding="utf-8")
    assert f"\n## {name}\n\nThe rows of `{other}`" in page
    called = ast.walk(ast.parse(inspect.getsource(STREAMS[name])))
    assert STREAMS[other].__name__ in {getattr(node, "id", "") for node in called}
    assert _declared(name)["name"] == name


@pytest.mark.parametrize("name", [n for n in STREAMS if n not in (*EMBEDDED, *MADE_OF)])
def test_the_sections_of_streams_state_the_sizes_of_their_parts(name):
    page = (ROOT / "docs" / "streams.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
    rows = {
        part: re.findall(rf"^\| {part} \|(.*)\|(.*)\|$", section, re.MULTILINE)[0]
        for part in ("subset", "held-out", "all")
    }
    sizes = inspect.signature(STREAMS[name]).parameters["sizes"].default
    assert isinstance(sizes, Sizes)
    for part, train, test in (
        ("subset", sizes.train, sizes.test),
        ("held-out", sizes.held_out_train, sizes.held_out_test),
    ):
        for cell, size in zip(rows[part], (train, test), strict=True):
            assert re.search(rf"\b{size:,}\b", cell), f"{part}: {cell}"


def test_the_two_commands_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"make ([a-z-]+)(?= +(?:#|DATA)|`)", README + RESULTS))
    assert named >= {"demo", "test", "results", "reproduce", "reproduce-quick", "tables"}
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_map_of_the_algorithm_names_things_that_exist():
    page = (ROOT / "docs" / "algorithm.md").read_text(encoding="utf-8")
    homes = {
        "step1_list": "cslr.protocol.step1_list",
        "step2_sign": "cslr.protocol.step2_sign",
        "step3_match": "cslr.protocol.step3_match",
        "step5_rehearse": "cslr.protocol.step5_rehearse",
        "step5_federate": "cslr.protocol.step5_federate",
        "contribution": "cslr.protocol.step4_aggregate.contribution",
        "estimate": "cslr.protocol.step4_aggregate.estimate",
        "mixed_model": "cslr.protocol.step4_aggregate.mixed_model",
        "list_mode": "cslr.protocol.list_mode",
        "public_space": "cslr.protocol.public_space",
        "round": "cslr.protocol.round",
        "ports": "cslr.protocol.ports",
        "messages": "cslr.protocol.messages",
        "tags": "cslr.protocol.tags",
        "values": "cslr.privacy.values",
        "mechanism": "cslr.privacy.mechanism",
        "PublicSpace": "cslr.protocol.public_space:PublicSpace",
        "SimulatedCohort": "cslr.federation.simulation:SimulatedCohort",
    }
    named = re.findall(r"`(\w+)\.(\w+)`", page)
    named = [(home, name) for home, name in named if home not in Config.model_fields]  # settings
    assert len(named) >= 20
    for home, name in named:
        assert hasattr(pkgutil.resolve_name(homes[home]), name), f"{home}.{name}"


def test_the_map_of_the_algorithm_states_the_families_and_usual_scales():
    page = (ROOT / "docs" / "algorithm.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (classification|intents|tagging) \|(.*)\|$", page, re.MULTILINE)
    assert len(rows) == 3
    for name, cells in rows:
        _, _, _, bound, sent, read = (cell.strip() for cell in cells.split("|"))
        family = Family(name, 3)
        assert float(bound) == family.bound
        assert (sent == "nothing") == (family.sent() == 0)
        assert read == ("sigmoids" if family.sigmoid else "softmax")
    scales = re.findall(r"^\| (o|o_t|c_k|e_m|s_m|B p_m) \|.*\| ([\d.]+) \|$", page, re.MULTILINE)
    usual = {part: float(scale) for part, scale in scales}
    parts = {"all": "o", "task": "o_t", "label": "c_k", "own": "e_m", "sub": "s_m", "text": "B p_m"}
    assert usual == {parts[name]: scale for name, scale in USUAL.items()}
    assert f"`OVERLAP` = {OVERLAP:g} " in page
    assert f"`TRUSTED` = {TRUSTED:g}" in page


def test_links_between_documents_lead_somewhere():
    for path in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_public_names_are_exactly_these_and_all_load():
    assert sorted(cslr.__all__) == sorted(cslr._HOME_OF)
    for name in cslr.__all__:
        assert getattr(cslr, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = cslr.nonsense


def measured(title: str) -> tuple[dict[tuple[str, int, str, str], float], dict[str, float]]:
    """The scores of one stream in docs/results.md, and its yardsticks with the prior alone."""
    block = RESULTS.split("<!-- results:begin")[1].split("<!-- results:end -->")[0]
    part = block.split(f"**{title}")[1].split("\n**")[0]
    rows = re.findall(r"\| a (\w+) \| (\d+) \| ([\d.∞]+) \| (\w+) \| \*\*([\d.]+)\*\*", part)
    beside = re.findall(r"(majority|zero-shot|finetune|joint|ε = 0\)) (\d+\.\d)", part)
    return (
        {(unit, int(n), epsilon, prior): float(score) for unit, n, epsilon, prior, score in rows},
        {name.replace("ε = 0)", "alone"): float(score) for name, score in beside},
    )


@pytest.mark.parametrize(
    ("title", "clients", "many"),
    [
        ("Split-AG-News", 20, 100),
        ("Split-Amazon", 50, 250),
        ("MultiWOZ-Intent", 40, 200),
        ("NER-Domain", 30, 300),
    ],
)
def test_every_stream_has_its_results_and_yardsticks(title, clients, many):
    scores, beside = measured(title)
    epsilons = ("1.00", "4.00", "8.00", "∞")
    both = itertools.product(("client", "person"), epsilons)
    assert {(unit, clients, epsilon, "labels") for unit, epsilon in both} <= set(scores)
    assert ("client", many, "4.00", "labels") in scores
    assert set(beside) == {"majority", "zero-shot", "finetune", "joint", "alone"}


@pytest.mark.parametrize(
    ("title", "clients", "free", "client", "person"),
    [
        ("Split-AG-News", 20, (2.5, 4.5), (3.5, 5.5), (7.0, 9.5)),
        ("Split-Amazon", 50, (0.5, 1.5), (0.5, 1.5), (7.0, 9.5)),
        ("MultiWOZ-Intent", 40, (-0.5, 0.5), (2.5, 3.5), (7.0, 9.5)),
        ("NER-Domain", 30, (1.0, 2.0), (1.0, 2.0), (20.0, 30.0)),
    ],
)
def test_how_to_read_the_results_agrees_with_the_results(title, clients, free, client, person):
    """The prose under the tables is typed, so it must go on being true of what is measured."""
    scores, beside = measured(title)

    def gained(unit: str, epsilon: str) -> float:
        return scores[unit, clients, epsilon, "labels"] - beside["zero-shot"]

    assert client[0] < gained("client", "4.00") < client[1]
    assert person[0] < gained("person", "4.00") < person[1]
    assert gained("client", "∞") >= 6.0
    assert free[0] < gained("client", "1.00") < free[1]


def test_the_translation_to_replace_one_is_what_the_accountant_says():
    page = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    stated = re.findall(r"about ([\d.]+) / ([\d.]+) / ([\d.]+)", page)[0]
    for epsilon, other in zip((1.0, 4.0, 8.0), stated, strict=True):
        sigma = cslr.calibrate(cslr.Budget(epsilon), releases=1).sigma
        assert gaussian_epsilon(2 / sigma, 1e-5) == pytest.approx(float(other), abs=0.06)


def test_the_trust_card_in_the_docs_is_the_one_that_was_measured():
    rows = json.loads((ROOT / "trust-card.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    block = page.split("<!-- trust:begin")[1].split("<!-- trust:end -->")[0]
    assert len(rows) > 40
    for row in rows:
        held = "yes" if row["holds"] else "no"
        assert f"| {row['name']} | {row['target']} | {row['figure']} | {held} |" in block


def test_the_table_of_other_streams_is_that_of_the_scores_it_was_made_from():
    page = (ROOT / "docs" / "transfer.md").read_text(encoding="utf-8")
    kept = json.loads((ROOT / "benchmarks" / "transfer.json").read_text(encoding="utf-8"))
    rows = {line.split(" | ")[0]: line for line in page.splitlines() if line.startswith("| ")}
    for each in kept:
        cells = [score for _, _, score in each["cells"]]
        scores = [each["zero_shot"], *cells, each["noiseless"], each["curator"], each["pooled"]]
        told = [cell.removesuffix(" !") for cell in rows[f"| {each['name']}"].split(" | ")[2:-1]]
        assert told == ["–" if score is None else f"{score:.1f}" for score in scores]
