"""The report of `cslr data check` on a file."""

from __future__ import annotations

import json

import pytest

from cslr.cli.data_files import check_report
from cslr.data.own import check
from cslr.data.own.check import NOTICE
from cslr.errors import ConfigError, DataError


def test_a_report_counts_clients_tasks_and_labels(write, rows, declare):
    rows += [rows[0] | {"text": f"again {number}"} for number in range(3)]
    report = check(write("csv", rows), declare())
    assert report.ready
    assert (report.clients, report.registered, report.people) == (3, 4, 3)
    assert report.rows_per_client == (1, 3.0, 5)  # east has 1, north 5
    assert report.clients_in_several_tasks == 1
    spring, autumn = report.tasks
    assert (spring.name, spring.train, spring.test, spring.clients) == ("spring", 5, 1, 2)
    assert spring.train_labels == {"praise": 4, "blame": 1}
    assert spring.test_labels == {"praise": 0, "blame": 1}
    assert autumn.train_labels == {"order": 1}
    assert report.totals == {}
    assert report.problems == report.findings == ()
    assert report.remarks == ("task 'autumn' has no test rows: it has no score",)


def test_entities_are_counted_in_tagging_and_all_labels_in_intents(write, rows, declare):
    tagged = rows[0] | {"text": "Ida Holm saw Jo", "label": ["B-PER", "I-PER", "O", "B-PER"]}
    report = check(write("jsonl", [tagged]), declare("tagging"))
    assert report.tasks[0].train_labels == {"PER": 2, "LOC": 0}
    both = rows[0] | {"label": "praise|blame"}
    report = check(write("csv", [both, both]), declare("intents"))
    assert report.tasks[0].train_labels == {"praise": 2, "blame": 2}


def test_a_report_is_for_the_data_holder_and_says_so(write, rows, declare):
    report = check(write("csv", rows), declare())
    assert report.as_lines()[0] == NOTICE
    assert "exact counts of private rows" in NOTICE
    assert report.as_json()["notice"] == NOTICE


def test_lines_and_json_say_the_same(write, rows, declare):
    report = check(write("csv", rows), declare())
    plain = json.loads(json.dumps(report.as_json()))
    assert plain["rows_per_client"] == {"min": 1, "median": 1.5, "max": 2}
    assert plain["tasks"][0]["train_labels"] == {"praise": 1, "blame": 1}
    assert plain["ready"] is True
    lines = report.as_lines()
    assert "clients with rows: 3 of 4 registered" in lines
    assert "train rows per client: 1 to 2, median 1.5" in lines
    assert "task spring: 2 train rows of 2 clients, 1 test rows" in lines
    assert "people: 3" in lines
    assert lines[-1] == "ready: yes"


def test_all_problems_are_counted_and_the_first_are_listed(write, rows, declare):
    rows += [rows[0] | {"label": "joy"}] * 25 + [rows[0] | {"client": "east"}] * 2
    path = write("jsonl", rows)
    report = check(path, declare())
    assert report.totals == {"person in two clients": 2, "undeclared label": 25}
    assert len(report.problems) == 20
    assert report.problems[0] == f"{path}, line 5: label 'joy' is not declared"
    assert not report.ready
    unshared = "correct the rows of persons that occur in too many clients: they cannot be skipped"
    bad = "correct the bad rows, or leave them out with --skip-bad-rows"
    assert report.findings == (bad, unshared)
    lines = report.as_lines()
    assert "bad rows: 27 (person in two clients 2, undeclared label 25)" in lines
    assert "  ... and 7 more" in lines
    assert lines[-1] == "ready: no"
    assert check(path, declare(), skip_bad_rows=True).findings == (unshared,)
    assert check(write("jsonl", rows[:-2]), declare(), skip_bad_rows=True).ready


def test_what_a_run_refuses_to_skip_is_found_beforehand(write, rows, declare):
    torn = write("jsonl", [*rows, rows[0] | {"split": "test"}])
    assert check(torn, declare(), skip_bad_rows=True).ready
    (finding,) = check(torn, declare(test_rows="public"), skip_bad_rows=True).findings
    assert finding.startswith("correct the rows of persons in both train and test")
    head = b"text,label,client,task,split,person\n"
    unclear = head + b'"x,praise,north,spring,train,p1\ny,praise,east,spring",train,p2\n'
    good = b"fine,praise,north,spring,train,p3\n"
    (finding,) = check(write("csv", unclear + good), declare(), skip_bad_rows=True).findings
    assert finding.startswith("correct the places where rows end unclearly")


def test_people_who_may_be_one_are_remarked_where_people_are_the_units(write, rows, declare):
    path = write("csv", [*rows, rows[0] | {"person": "P1"}])
    told = "people 'P1' and 'p1' count as two; if they are the same, give them the same name"
    people = {"people": 9, "privacy": {"epsilon": 4.0, "unit": "person"}}
    assert told in check(path, declare(**people)).remarks
    assert told not in check(path, declare()).remarks


def test_names_that_may_be_one_clients_and_a_large_delta_are_remarked(write, rows, declare):
    twice = [*rows, rows[0] | {"client": "NORTH", "person": "p7"}]
    declared = declare()
    loose = declared.privacy.model_copy(update={"delta": 0.25})
    report = check(write("csv", twice), declared.model_copy(update={"privacy": loose}))
    assert (
        "clients 'NORTH' and 'north' count as two; if they are the same, give them the same name"
        in (report.remarks)
    )
    assert any(each.startswith("delta = 0.25 is not below 1/4") for each in report.remarks)


def test_what_keeps_a_run_from_starting_is_found(write, rows, declare):
    path = write("csv", rows)
    report = check(path, declare(clients=2, confirmed=False))
    assert report.findings[0] == "check it and set confirmed = true"
    assert "clients = 2 is declared, but 3 clients have rows" in report.findings[1]
    only_test = check(write("csv", rows[3:]), declare())
    assert only_test.findings == ("there are no train rows",)
    assert only_test.rows_per_client == (0, 0.0, 0)
    assert "task 'spring' has no train rows: its release will be noise only" in only_test.remarks


def test_what_should_be_meant_is_remarked(write, rows, declare):
    remarks = check(write("csv", rows[:1]), declare()).remarks
    assert remarks == (
        "no test rows: a run can train and predict, but has no scores; declare "
        "test_share = 0.2 to hold rows back for them",
        "task 'spring' has no train rows of blame",
        "task 'autumn' has no train rows: its release will be noise only",
    )


def test_a_report_finds_the_declaration_beside_the_file(write, rows, tmp_path):
    path = write("csv", rows)
    with pytest.raises(ConfigError, match=r"declaration .*shops\.cslr\.toml does not exist"):
        check_report(path)
    (tmp_path / "shops.cslr.toml").write_text(
        'name = "s"\nfamily = "classification"\nscenario = "class"\nclients = 1\n'
        '[privacy]\nepsilon = 1\n[[labels]]\nname = "praise"\ndescription = ""\n'
        '[[labels]]\nname = "b"\ndescription = ""\n[[tasks]]\nname = "t"\n'
    )
    report = check_report(path)
    assert report.totals == {"undeclared label": 3}
    assert "add a description of label 'praise'" in report.findings
    (tmp_path / "shops.cslr.toml").rename(tmp_path / "other.toml")
    assert check_report(path, tmp_path / "other.toml", skip_bad_rows=True).totals == report.totals
    path = write("csv", b"text,label,client,label\n")
    with pytest.raises(DataError, match="is duplicated"):
        check_report(path, tmp_path / "other.toml")


def test_a_report_says_which_rows_of_people_a_run_would_not_use(write, rows, declare):
    def remarks(times=1, **numbers):
        privacy = {"epsilon": 4.0, "unit": "person"}
        both = [rows[0], rows[0] | {"task": "autumn", "label": "order"}]
        declared = declare(privacy=privacy, people=5, **numbers)
        return check(write("csv", both * times), declared).remarks

    one = [remark for remark in remarks() if "tasks_per_person" in remark]
    assert len(one) == 1
    assert "rows of 2 tasks" in one[0]
    assert not any("tasks_per_person" in each for each in remarks(tasks_per_person=2))
    assert any("about 3 rows of a task" in each for each in remarks(times=3))
    assert not any("about 3 rows" in each for each in remarks(times=3, rows_per_person=2))
