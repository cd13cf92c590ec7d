"""One's own rows from the first command to the last, and every way to get it wrong.

All tests here share one embedding cache, so they run in one worker.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cslr.arrays import FloatArray
from cslr.privacy.ledger.book import Ledger
from cslr.runs.directory import SeedDirectory

pytestmark = pytest.mark.xdist_group("cli data")

Call = Callable[..., tuple[int, str, str]]

CLIENTS = ("Quillfeather", "Ravenscroft", "Saltmarsh")
SAYINGS = {
    ("spring", "praise"): "The {} was a delight, thank you",
    ("spring", "blame"): "The {} was broken and nobody cared",
    ("autumn", "order"): "Please send me another {} by Friday",
}
THINGS = ("kettle", "lamp", "chair", "carpet", "mirror", "clock")
DECLARATION = """confirmed = true
name = "shops"
family = "classification"
scenario = "class"
clients = 5
public = "public.txt"
[columns]
task = "period"
split = "split"
[privacy]
epsilon = 8.0
delta = 1e-6
[[labels]]
name = "praise"
description = "A customer is pleased and says thank you."
[[labels]]
name = "blame"
description = "A customer is angry because something is broken."
[[labels]]
name = "order"
description = "A customer orders something and wants it sent."
[[tasks]]
name = "spring"
labels = ["praise", "blame"]
[[tasks]]
name = "autumn"
labels = ["order"]
"""
SMALL = "yardsticks = false\n[replay]\ndimension = 16\n[paper]\nn_r = 20\n"


def public_lines() -> list[str]:
    places = ("harbour", "market", "theatre", "station", "museum", "garden", "bakery", "tower")
    things = ("opens at nine", "was painted green", "has a new door", "is closed in May")
    times = ("on Mondays", "in winter", "since the flood", "every other week")
    return [f"The {p} {t} {w}." for p in places for t in things for w in times]


def rows() -> list[str]:
    """Every client has each message once about its own two labels; then some test rows."""
    lines = ["text,label,client,period,split"]
    for (period, label), saying in SAYINGS.items():
        for place, thing in enumerate(THINGS):
            lines.append(f'"{saying.format(thing)}",{label},{CLIENTS[place % 3]},{period},train')
        lines.append(f'"{saying.format("vase")}",{label},Quillfeather,{period},test')
    return lines


@pytest.fixture
def shops(cslr, tmp_path) -> Path:
    """A data set that is ready, and small.toml for a short run."""
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "shops.cslr.toml").write_text(DECLARATION)
    (tmp_path / "public.txt").write_text("\n".join(public_lines()) + "\n")
    (tmp_path / "shops.csv").write_text("\n".join(rows()) + "\n")
    return tmp_path


def edit(path: Path, before: str, after: str) -> None:
    content = path.read_text()
    assert before in content
    path.write_text(content.replace(before, after))


def run_of(cslr: Call, *more: str) -> dict:
    code, out, err = cslr("run", "small.toml", "--data", "shops.csv", "--json", *more)
    assert code == 0, err
    return json.loads(out)


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# A run


def test_own_rows_are_learnt_with_enforced_privacy(cslr, shops):
    result = run_of(cslr, "--run-dir", "first")
    assert (result["stream"], result["clients"], result["privacy"]) == ("shops", 5, "enforced")
    assert (result["delta"], result["budget"]) == (1e-6, 8.0)
    assert result["epsilon"]["end_to_end"]["roster"] == pytest.approx(8.0, rel=1e-6)
    assert len(Ledger.read(shops / "shops.cslr-federation" / "ledger.jsonl").charges) == 2
    assert not list((shops / "shops.cslr-federation" / "keys").iterdir())
    code, out, _ = cslr("predict", "first", "--text", "Please send a vase")
    assert code == 0
    assert out.endswith("  Please send a vase\n")


def test_the_ledger_of_a_run_is_found_where_its_federation_keeps_it(cslr, shops):
    run_of(cslr, "--run-dir", "first")
    code, out, _ = cslr("ledger", "first", "--json")
    assert (code, len(json.loads(out)[0]["charges"])) == (0, 2)
    assert cslr("ledger", "verify", "first")[0] == 0
    (shops / "shops.cslr-federation").rename(shops / "moved")
    code, _, err = cslr("ledger", "first")
    assert code == 2
    assert "shops.cslr-federation, which does not exist" in " ".join(err.split())


def test_rows_have_one_ledger_by_whatever_name_they_are_called(cslr, shops):
    run_of(cslr, "--run-dir", "first")
    code, _, err = cslr("run", "small.toml", "--data", "shops.csv", "--federation", "other")
    assert code == 2
    assert f"shops.csv is at {shops / 'shops.cslr-federation'}" in err
    (shops / "links").mkdir()
    for name in ("shops.csv", "shops.cslr.toml", "public.txt"):
        (shops / "links" / name).symlink_to(shops / name)
    code, _, err = cslr("run", "small.toml", "--data", "links/shops.csv")
    assert code == 2
    assert "beyond its budget of 8" in err
    assert not (shops / "links" / "shops.cslr-federation").exists()


def test_three_runs_by_three_names_of_a_ledger_stay_within_one_budget(cslr, shops):
    """Each run alone would cost ε = 8; together they cost 15.9."""
    run_of(cslr, "--federation", "f1", "--run-dir", "first")
    arguments = ["run", "small.toml", "--data", "shops.csv"]
    code, _, err = cslr(*arguments, "--federation", "f2")
    assert code == 2
    assert f"--federation f2: the ledger of {shops / 'shops.csv'} is at {shops / 'f1'}" in err
    for same in ([], ["--federation", "f1"]):
        code, _, err = cslr(*arguments, *same)
        assert code == 2
        assert "beyond its budget of 8 (spent: 8)" in err
    assert not (shops / "f2").exists()
    assert not (shops / "shops.cslr-federation").exists()


def test_rows_and_declaration_under_another_name_have_no_second_budget(cslr, shops):
    run_of(cslr, "--run-dir", "first")
    for name in ("shops.csv", "shops.cslr.toml"):
        (shops / name.replace("shops", "stores")).write_bytes((shops / name).read_bytes())
    edit(shops / "stores.cslr.toml", "epsilon = 8.0", "epsilon = 80.0")
    edit(shops / "stores.cslr.toml", "clients = 5", "clients = 7")
    code, _, err = cslr("run", "small.toml", "--data", "stores.csv")
    assert code == 2
    assert f"stores.csv has a ledger at {shops / 'shops.cslr-federation'}" in err
    (shops / "shops.csv").rename(shops / "renamed.csv")
    (shops / "shops.cslr.toml").rename(shops / "renamed.cslr.toml")
    code, _, err = cslr("run", "small.toml", "--data", "renamed.csv")
    assert code == 2
    assert "renamed.csv has a ledger at" in err
    federation = ["--federation", "shops.cslr-federation"]
    code, _, err = cslr("run", "small.toml", "--data", "renamed.csv", *federation)
    assert code == 2
    assert "beyond its budget of 8" in err


def test_a_ledger_that_was_moved_is_used_after_that_was_said(cslr, shops, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    run_of(cslr, "--epsilon", "4", "--run-dir", "first")
    moved = shops.with_name(f"{shops.name}-moved")
    shops.rename(moved)
    again = ["run", str(moved / "small.toml"), "--data", str(moved / "shops.csv"), "--json"]
    again += ["--epsilon", "4", "--run-dir", str(moved / "second")]
    ledger = str(moved / "shops.cslr-federation")
    code, _, err = cslr(*again)
    assert code == 2
    assert f"cslr ledger moved {ledger}" in err
    code, _, err = cslr("ledger", "moved", ledger)
    assert code == 130  # answered with no
    assert "the original must not be used any more" in err
    code, out, _ = cslr("ledger", "moved", ledger, "--yes")
    assert code == 0
    assert f"{moved / 'shops.cslr-ledger'} now points to {ledger}" in out
    code, out, err = cslr(*again)
    assert code == 0, err
    assert json.loads(out)["epsilon"]["end_to_end"]["roster"] > 5
    (moved / "shops.cslr-federation").rename(moved / "elsewhere")
    code, _, err = cslr(*again)
    assert code == 2
    assert "a new ledger at ε = 0 is not started" in err
    told = ["ledger", "moved", str(moved / "elsewhere"), "--yes"]
    assert cslr(*told, "--data", str(moved / "shops.csv"))[0] == 0


def test_a_cap_is_kept_where_rows_arrive_from_one_day_to_the_next(cslr, shops):
    """All three clients contribute to spring, so with a cap of one none contributes to autumn."""
    every = (shops / "shops.csv").read_text()
    spring = [line for line in every.splitlines() if ",autumn," not in line]
    (shops / "shops.csv").write_text("\n".join(spring) + "\n")
    told = ["run", "small.toml", "--data", "shops.csv", "--cap", "1", "--run-dir", "first"]
    assert cslr(*told, "--until", "1")[0] == 0
    spoken = shops / "shops.cslr-federation" / "spoken.json"
    first = json.loads(spoken.read_text())
    assert first.pop("asked") == [0]
    assert list(first.values()) == [[0]] * 3
    (shops / "shops.csv").write_text(every)
    assert cslr(*told)[0] == 0
    assert json.loads(spoken.read_text()) == first | {"asked": [0, 1]}
    spoken.unlink()
    code, _, err = cslr(*told)
    assert code == 2
    assert "it is unknown which clients have reached their cap" in err


def test_nothing_private_is_in_the_run_directory_or_the_ledger(cslr, shops):
    with (shops / "shops.csv").open("a") as file:
        file.write("   ,praise,Quillfeather,spring,train\n" * 7)
    arguments = ["run", "small.toml", "--data", "shops.csv", "--skip-bad-rows", "--yardsticks"]
    code, out, err = cslr(*arguments, "--run-dir", "first")
    assert code == 0
    assert "skipped 7 bad rows of shops.csv (empty text 7)" in err
    code, _, _ = cslr("predict", "first", "--text", "Please send a vase")
    assert code == 0
    written = files_of(shops / "first") | files_of(shops / "shops.cslr-federation")
    assert len(written) > 6
    private = [*CLIENTS, *THINGS, "vase", "nobody cared", "empty text", "left out", "partition"]
    for path, content in written.items():
        for word in private:
            assert word.encode() not in content, f"{word} in {path}"
            assert word not in path.name
    trace = [
        json.loads(line) for line in (shops / "first" / "trace.jsonl").read_text().split("\n")[:-1]
    ]
    assert {line["kind"] for line in trace} == {"row", "cost", "finished"}
    assert {line.get("method") for line in trace} == {"cslr", "majority", "zero-shot", None}
    assert "finetune and joint read rows without noise" in " ".join(out.split())


def test_a_second_run_is_refused_and_writes_nothing(cslr, shops):
    run_of(cslr, "--run-dir", "first")
    before = files_of(shops)
    code, _, err = cslr("run", "small.toml", "--data", "shops.csv", "--run-dir", "second")
    assert code == 2
    assert "2 releases would bring 'shops' to ε = 12" in err
    assert "beyond its budget of 8 (spent: 8). Nothing was released" in err
    assert "a finished one answers with `cslr predict`" in " ".join(err.split())
    assert files_of(shops) == before


def test_a_directory_is_no_file_to_draft_for(cslr, shops):
    code, _, err = cslr("data", "init", ".")
    assert code == 2
    assert ". is a directory; give a file of rows" in err


def test_the_refusal_of_a_draft_names_its_file(cslr, shops):
    path = shops / "shops.cslr.toml"
    path.write_text(path.read_text().replace("confirmed = true", "confirmed = false"))
    code, _, err = cslr("run", "small.toml", "--data", "shops.csv")
    assert code == 2
    assert "shops.cslr.toml is a draft: check it and set confirmed = true" in err


def test_runs_that_spend_less_add_up_until_the_budget_is_reached(cslr, shops):
    spent = [
        run_of(cslr, "--epsilon", "4", "--run-dir", f"run-{n}")["epsilon"]["end_to_end"]["roster"]
        for n in range(3)
    ]
    assert spent[0] == pytest.approx(4.0, rel=1e-6)
    assert spent[0] < spent[1] < spent[2] <= 8
    code, _, err = cslr("run", "small.toml", "--data", "shops.csv", "--epsilon", "4")
    assert code == 2
    assert f"(spent: {spent[2]:.3g})" in err
    code, _, err = cslr("run", "small.toml", "--data", "shops.csv")
    assert code == 2
    assert "was fixed by an earlier run: 2 tasks for ε = 4, q = 1, cap = 2" in err
    assert "Run with the same --epsilon, --q, --cap and --head" in err
    assert "another version of cslr chose what is released" in err


def test_a_larger_budget_cannot_be_declared_afterwards(cslr, shops):
    run_of(cslr)
    edit(shops / "shops.cslr.toml", "epsilon = 8.0", "epsilon = 16.0")
    code, _, err = cslr("run", "small.toml", "--data", "shops.csv")
    assert code == 2
    assert "budget.epsilon (8.0 -> 16.0)" in err


def test_an_interrupted_run_goes_on_at_no_further_cost(cslr, shops):
    whole = run_of(cslr, "--run-dir", "first")
    ledger = (shops / "shops.cslr-federation" / "ledger.jsonl").read_text()
    trace = shops / "first" / "trace.jsonl"
    trace.write_text("".join(trace.read_text().splitlines(keepends=True)[:1]))
    (shops / "first" / "model.json").unlink()
    assert run_of(cslr, "--run-dir", "first")["matrix"] == whole["matrix"]
    assert (shops / "shops.cslr-federation" / "ledger.jsonl").read_text() == ledger
    assert (shops / "first" / "model.json").exists()


def test_a_run_interrupted_between_charge_and_release_goes_on_within_its_budget(
    cslr, shops, monkeypatch
):
    """The second release is charged and then lost: it is made again with the same noise."""
    save = SeedDirectory.save

    def interrupted(self: SeedDirectory, label: str, vector: FloatArray) -> None:
        if label == "task 1":
            raise KeyboardInterrupt
        save(self, label, vector)

    arguments = ["run", "small.toml", "--data", "shops.csv", "--run-dir", "first"]
    with monkeypatch.context() as patch:
        patch.setattr(SeedDirectory, "save", interrupted)
        code, _, err = cslr(*arguments)
    assert code == 130
    assert "To resume, repeat the command with --run-dir first" in err
    code, _, err = cslr("predict", "first", "--text", "Please send a vase")
    assert code == 2
    assert "not finished" in err
    result = run_of(cslr, "--run-dir", "first")
    assert result["epsilon"]["end_to_end"]["roster"] == pytest.approx(8.0, rel=1e-6)


def test_without_test_rows_it_learns_and_says_that_nothing_was_measured(cslr, shops):
    edit(shops / "shops.csv", ",test\n", ",train\n")
    result = run_of(cslr, "--run-dir", "first")
    assert result["evaluated"] is False
    assert (result["aa"], result["bwt"], result["fwt"]) == (None, None, None)
    assert set(result["labels"].values()) == {None}
    assert not (shops / "first" / "accuracy.png").exists()
    code, out, _ = cslr("run", "small.toml", "--data", "shops.csv", "--run-dir", "first")
    assert code == 0
    assert "No test rows, so no scores." in out
    assert "nan" not in out
    assert cslr("predict", "first", "--text", "Please send a vase")[0] == 0


def test_a_task_without_test_rows_has_no_score(cslr, shops):
    edit(shops / "shops.csv", "Quillfeather,autumn,test\n", "Quillfeather,autumn,train\n")
    result = run_of(cslr, "--run-dir", "first")
    assert all(row[1] is None and row[0] is not None for row in result["matrix"])
    assert (result["aa"], result["evaluated"]) == (None, True)
    code, out, _ = cslr("run", "small.toml", "--data", "shops.csv", "--run-dir", "first")
    assert code == 0
    assert "average accuracy undefined: some tasks have no test rows" in out


def test_public_sentences_of_clients_are_told_with_their_lines(cslr, shops):
    lines = public_lines()
    lines[2:2] = ["", "Please send me another CLOCK by Friday!"]
    lines += ["The carpet was a delight, thank you"]
    (shops / "mine.txt").write_text("\n".join(lines) + "\n")
    arguments = ["run", "small.toml", "--data", "shops.csv", "--run-dir", "first"]
    code, _, err = cslr(*arguments, "--anchors", "mine.txt")
    assert code == 0
    assert (
        f"warning: 2 sentences of mine.txt also occur in clients' texts (line 4, {len(lines)})"
        in err
    )
    assert "clock" not in err.lower()
    assert not any(b"warning" in content for content in files_of(shops / "first").values())


def test_a_delta_of_one_over_the_clients_is_warned_of_before_anything_is_spent(cslr, shops):
    edit(shops / "shops.cslr.toml", "delta = 1e-6", "delta = 0.2")
    said = "delta = 0.2 is not below 1/5"
    code, out, _ = cslr("data", "check", "shops.csv")
    assert code == 0
    assert f"note: {said}" in out
    code, _, err = cslr("run", "small.toml", "--data", "shops.csv", "--until", "1")
    assert code == 0, err
    assert f"warning: {said}" in err


# Other families, from other formats


def test_intents_of_ones_own(cslr, shops):
    (shops / "desk.cslr.toml").write_text(
        DECLARATION.replace('"shops"', '"desk"').replace("classification", "intents")
    )
    lines = []
    for (period, label), saying in SAYINGS.items():
        for place, thing in enumerate(THINGS):
            row = {"text": saying.format(thing), "client": CLIENTS[place % 3], "period": period}
            row |= {"label": [label, "order"], "split": "test" if place == 5 else "train"}
            lines.append(json.dumps(row))
    (shops / "desk.jsonl").write_text("\n".join(lines) + "\n")
    code, out, err = cslr(
        "run", "small.toml", "--data", "desk.jsonl", "--run-dir", "first", "--json"
    )
    assert code == 0, err
    assert set(json.loads(out)["more"]) == {"exact_match", "micro_f1", "macro_f1"}
    code, out, _ = cslr("predict", "first", "--text", "Please send a vase", "--json")
    assert {choice["label"] for choice in json.loads(out)["labels"]} <= {"praise", "blame", "order"}


def test_entities_of_ones_own(cslr, shops):
    declaration = DECLARATION.split("[[labels]]")[0].replace('"shops"', '"notes"')
    declaration = declaration.replace("classification", "tagging").replace('"class"', '"domain"')
    (shops / "notes.cslr.toml").write_text(
        declaration + '[[labels]]\nname = "PER"\ndescription = "A person."\n'
        'examples = ["Yesterday [Ida Holm|PER] waited .", "[Tom|PER] came late ."]\n'
        '[[tasks]]\nname = "spring"\n[[tasks]]\nname = "autumn"\n'
    )
    blocks = []
    for place, name in enumerate(("Nora", "Piet", "Olga", "Hans", "Vera", "Karl")):
        period, split = ("spring", "autumn")[place % 2], "test" if place > 3 else "train"
        head = f"# client = {CLIENTS[place % 3]}\n# period = {period}\n# split = {split}\n"
        blocks.append(f"{head}Today\tO\n{name}\tB-PER\nMeer\tI-PER\nrested\tO\n.\tO\n")
    (shops / "notes.conll").write_text("\n".join(blocks))
    arguments = ["run", "small.toml", "--data", "notes.conll", "--run-dir", "first"]
    code, out, err = cslr(*arguments, "--json")
    assert code == 0, err
    assert json.loads(out)["metric"] == "strict entity micro-F1, %"
    code, out, _ = cslr("predict", "first", "--text", "Tomorrow Ida Holm, too.", "--json")
    assert json.loads(out)["words"] == ["Tomorrow", "Ida", "Holm", ",", "too", "."]


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--clients", "9"], ["--clients is for simulated clients", "shops.cslr.toml"]),
        (["--alpha", "1"], ["--alpha is for simulated clients"]),
        (["--rows", "all"], ["--rows is for simulated clients"]),
        (["--min-rows", "1"], ["--min-rows is for simulated clients"]),
        (["--stream", "clinic"], ["--stream clinic and --data shops.csv are two data sets"]),
        (
            ["--scenario", "task"],
            ["--scenario task contradicts shops.cslr.toml"],
        ),
        (["--privacy", "simulated"], ["--privacy simulated is not allowed on your own data"]),
        (["--epsilon", "9"], ["--epsilon 9 exceeds", "epsilon = 8 in shops.cslr.toml"]),
        (["--epsilon", "inf"], ["--epsilon inf exceeds"]),
        (["--delta", "1e-5"], ["--delta 1e-05 contradicts shops.cslr.toml, which declares 1e-06"]),
        (["--adversary", "public"], ["--adversary public", "epsilon = 8 against roster"]),
        (["--set", "replay.release=list"], ["reveals which clients hold rows of a task"]),
        (["--seeds", "13,17"], ["allows one seed only"]),
        (["--method", "joint"], ["'joint' reads rows without noise"]),
        (["--method", "nope"], ["known methods: cslr"]),
        (["--cap", "3"], ["cap", "1..2"]),
        (
            ["--declaration", "other.toml"],
            ["declaration other.toml does not exist", "cslr data init"],
        ),
        (["--anchors", "nowhere.txt"], ["nowhere.txt cannot be opened"]),
        (["--anchors", "small.toml"], ["small.toml contains 5 distinct sentences", "at least 100"]),
    ],
)
def test_a_setting_against_the_declaration_is_a_message_and_writes_nothing(
    cslr, shops, arguments, words
):
    before = files_of(shops)
    code, _, err = cslr("run", "small.toml", "--data", "shops.csv", *arguments)
    assert code == 2
    for word in words:
        assert word in err
    assert files_of(shops) == before


def test_a_budget_in_the_configuration_is_held_against_the_declaration(cslr, shops):
    (shops / "more.toml").write_text(SMALL + "[privacy]\nbudget = 20.0\n")
    code, _, err = cslr("run", "more.toml", "--data", "shops.csv")
    assert code == 2
    assert "privacy.budget = 20 contradicts the budget declared in shops.cslr.toml" in err


def test_a_file_that_is_not_there_is_not_taken_for_the_demo(cslr):
    code, _, err = cslr("run", "--data", "revuews.csv")
    assert code == 2
    assert "file revuews.csv does not exist" in err


def test_a_file_of_another_kind_is_refused(cslr, shops):
    code, _, err = cslr("run", "--data", "public.txt")
    assert code == 2
    assert ".csv, .tsv, .jsonl, .conll" in err


def test_without_public_sentences_a_run_says_where_to_get_some(cslr, shops):
    edit(shops / "shops.cslr.toml", 'public = "public.txt"\n', "")
    code, _, err = cslr("run", "--data", "shops.csv")
    assert code == 2
    for word in (
        "--anchors FILE",
        'public = "FILE" in shops.cslr.toml',
        "cslr data fetch public DIR",
    ):
        assert word in err
    assert "at least 100 sentences" in err


def test_a_draft_is_refused(cslr, shops):
    edit(shops / "shops.cslr.toml", "confirmed = true", "confirmed = false")
    code, _, err = cslr("run", "--data", "shops.csv")
    assert code == 2
    assert "check it and set confirmed = true" in err


def test_bad_rows_are_named_with_their_lines_and_brackets(cslr, shops):
    edit(shops / "shops.csv", ",order,Saltmarsh,", ",[bold red]gone[/],Saltmarsh,")
    code, _, err = cslr("run", "--data", "shops.csv")
    assert code == 2
    assert "2 rows not as declared" in err
    assert "[bold red]gone[/]" in err
    assert "line 18" in err
    assert not (shops / "shops.cslr-federation").exists()


def test_public_rows_are_studied_in_simulation_if_asked(cslr, shops):
    simulated = ("--privacy", "simulated", "--no-yardsticks")
    edit(shops / "shops.cslr.toml", 'public = "public.txt"', "public = true")
    anchors = ("--anchors", "public.txt")
    before = files_of(shops)
    beyond = ("--epsilon", "50")  # more than is declared: nothing is spent
    result = run_of(cslr, *simulated, *anchors, *beyond, "--run-dir", "study")
    assert (result["privacy"], result["evaluate"]) == ("simulated", "stored")
    assert result["aa"] is not None
    assert result["verdict"].endswith("(simulated)") or "below zero-shot" in result["verdict"]
    assert (shops / "study" / "seed-13" / "ledger.jsonl").exists()
    assert {path for path in files_of(shops) if "study" not in path.parts} == set(before)
    code, _, err = cslr(
        *("run", "small.toml", "--data", "shops.csv", *simulated, *anchors),
        *("--federation", "elsewhere"),
    )
    assert code == 2
    assert "--federation and --evaluate shown or private are for enforced privacy" in err


def test_public_rows_are_protected_unless_a_simulation_is_asked_for(cslr, shops):
    edit(
        shops / "shops.cslr.toml",
        'public = "public.txt"',
        'public_rows = true\npublic = "public.txt"',
    )
    result = run_of(cslr)
    assert (result["privacy"], result["evaluate"]) == ("enforced", "shown")


# data init, data check, data fetch


def test_a_declaration_is_drafted(cslr, shops):
    (shops / "shops.cslr.toml").unlink()
    code, out, _ = cslr("data", "init", "shops.csv")
    assert code == 0
    assert "Wrote the draft shops.cslr.toml" in out
    assert "cslr data check shops.csv\n" in out
    assert "confirmed = false" in (shops / "shops.cslr.toml").read_text()
    code, out, err = cslr("data", "init", "shops.csv")
    assert code == 0, err
    assert "The earlier draft is kept as shops.cslr.toml~." in out
    code, out, _ = cslr("data", "init", "shops.csv", "--declaration", "other.toml")
    assert code == 0
    assert "cslr data check shops.csv --declaration other.toml\n" in out
    code, out, _ = cslr("data", "check", "shops.csv", "--declaration", "other.toml")
    assert code == 2
    assert "to do: add a description of label 'praise'" in out
    code, _, err = cslr("data", "init", "nowhere.csv")
    assert code == 2
    assert "nowhere.csv cannot be opened" in err
    code, _, err = cslr("data", "check", "nowhere.csv")
    assert code == 2
    assert "nowhere.csv does not exist" in err
    (shops / "empty.csv").write_text("text,label,client\n")
    code, _, err = cslr("data", "init", "empty.csv")
    assert code == 2
    assert "empty.csv contains no readable row" in err
    assert not (shops / "empty.cslr.toml").exists()


def test_a_check_says_whether_a_file_is_ready(cslr, shops):
    code, out, err = cslr("data", "check", "shops.csv")
    assert code == 0, err
    assert err.startswith("warning: public.txt contains 128 distinct sentences")
    assert "do not publish it" in out
    assert "clients with rows: 3 of 5 registered" in out
    assert out.endswith("ready: yes\n")
    assert err.endswith("next: cslr run --data shops.csv\n")
    edit(shops / "shops.csv", ",order,Saltmarsh,", ",[red]x[/red],Saltmarsh,")
    code, out, _ = cslr("data", "check", "shops.csv")
    assert code == 2
    assert "[red]x[/red]" in out
    assert out.endswith("ready: no\n")
    assert cslr("data", "check", "shops.csv", "--skip-bad-rows")[0] == 0
    edit(shops / "shops.cslr.toml", 'public = "public.txt"\n', "")
    code, out, err = cslr("data", "check", "shops.csv", "--json")
    assert code == 2
    assert "`cslr run` will need --anchors FILE" in err
    assert json.loads(out)["totals"] == {"undeclared label": 2}


def test_public_sentences_are_fetched_from_a_copy(cslr, tmp_path):
    pytest.importorskip("datasets", reason="the extra cslr[hub] is not installed")
    (tmp_path / "copy").mkdir()
    row = json.dumps({"text": "The harbour was painted green in May."})
    (tmp_path / "copy" / "train.jsonl").write_text(row + "\n")
    code, out, err = cslr("data", "fetch", "public", "data", "--source", "copy")
    assert code == 0, err
    assert out == "data/anchors/wikipedia_sentences.txt.gz\n"
    assert (tmp_path / out.strip()).is_file()


def test_a_data_set_that_is_not_known_is_told_with_those_that_are(cslr):
    code, _, err = cslr("data", "fetch", "nope", "data")
    assert code == 2
    assert "unknown data set 'nope'; known data sets: ag-news, amazon, multiwoz, public" in err


# The example


def test_the_example_runs_as_it_is_described(cslr, tmp_path):
    """Its README's commands, on a copy with a sixth of the rows; they need no other file."""
    example = Path(__file__).resolve().parents[2] / "examples" / "own_data"
    for path in example.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    header, *rows = (example / "libraries.csv").read_text(encoding="utf-8").splitlines(True)
    (tmp_path / "libraries.csv").write_text("".join([header, *rows[::6]]), encoding="utf-8")
    page = (example / "README.md").read_text(encoding="utf-8")
    commands = [line.split() for line in page.splitlines() if line.startswith("cslr ")]
    assert [" ".join(words[1:3]) for words in commands][:3] == [
        "data init",
        "data check",
        "run --data",
    ]
    assert cslr(*commands[0][1:])[0] == 0
    assert cslr(*commands[1][1:])[0] == 0
    (tmp_path / "small.toml").write_text(SMALL)
    code, _, err = cslr("run", "small.toml", *commands[2][2:])
    assert code == 0, err
    assert "warning" not in err
    code, _, err = cslr("run", "small.toml", "--data", "libraries.csv")
    assert code == 2
    refusal = next(line for line in page.splitlines() if line.startswith("error:"))
    assert err.splitlines()[-1] == refusal
    plan = re.findall(r"`cslr (plan [^`]+)` says \"Not useful\"", page)[0]
    assert "Not useful" in cslr(*plan.split())[1]


def test_columns_that_are_not_found_are_named_in_a_command_that_corrects_it(cslr, tmp_path):
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n3,4\n")
    code, out, _ = cslr("data", "init", "odd.csv")
    assert code == 0
    assert "Columns of the file: 'a', 'b'. Say which are meant:" in out
    assert out.endswith("  cslr data init odd.csv --text COLUMN --label COLUMN --client COLUMN\n")
    code, out, _ = cslr("data", "init", "odd.csv", "--text", "a", "--label", "b", "--client", "b")
    assert out.endswith("  cslr data check odd.csv\n")


def test_a_binary_file_is_called_one(cslr, tmp_path):
    (tmp_path / "bin.csv").write_bytes(b"\x7fELF\x02\x01\0\0\0\r\n\0\r\x01" * 40)
    code, _, err = cslr("data", "init", "bin.csv")
    assert code == 2
    assert "damaged or not UTF-8 text" in err
