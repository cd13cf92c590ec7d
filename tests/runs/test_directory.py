"""A run directory: one writer, complete files, and releases with their ledger's receipt."""

from __future__ import annotations

import gc
import json
import os
import shutil
import stat
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from cslr.config import Config, load_config
from cslr.errors import LedgerCorrupted, RunDirectoryError
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import EphemeralKeys
from cslr.privacy.plan import Budget, calibrate
from cslr.protocol.round import Session
from cslr.runs.directory import RunDirectory, SeedDirectory, _Lock, read_trace

CONFIG = Config()
FEDERATION = Federation("clinics", Budget(20.0), "enforced")


@pytest.fixture
def run(tmp_path):
    """A run directory that was begun."""
    directory = RunDirectory(tmp_path / "run", CONFIG)
    directory.begin()
    return directory


# -- one writer ------------------------------------------------------------------------------------


HOLD = (
    "import fcntl, os, sys\n"
    "file = os.open(sys.argv[1], os.O_RDONLY)\n"
    "try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    "except BlockingIOError: print('refused', flush=True)\n"
    "else: print('held', flush=True)\n"
    "sys.stdin.read()\n"
)


def other_process(path) -> tuple[subprocess.Popen[str], str]:
    """One that tries to hold the directory, and whether it could."""
    command = [sys.executable, "-S", "-c", HOLD, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def test_two_processes_never_write_one_run_directory(run):
    again = RunDirectory(run.path, CONFIG)
    again.begin()  # the same process may
    process, found = other_process(run.path)
    process.communicate()
    assert found == "refused"
    run._lock = again._lock = None
    process, found = other_process(run.path)
    assert found == "held"
    with pytest.raises(RunDirectoryError, match=r"in use by another process; wait.*--run-dir"):
        run.begin()
    process.communicate()
    run.begin()


def test_a_directory_made_anew_in_its_place_is_locked_anew(run):
    shutil.rmtree(run.path)
    again = RunDirectory(run.path, CONFIG)
    again.begin()
    assert again._lock is not run._lock
    assert again._lock.holds(run.path)


def test_looking_at_a_running_run_changes_nothing_in_it(run):
    """Its writer may be in the middle of a line."""
    run.note(kind="row", value=1)
    trace = run.path / "trace.jsonl"
    with trace.open("a") as file:
        file.write('{"kind": "ro')
    before = trace.read_bytes()
    assert RunDirectory(run.path, CONFIG).trace == [{"kind": "row", "value": 1}]
    assert trace.read_bytes() == before


def test_a_line_cut_off_by_a_crash_is_dropped_when_the_run_goes_on(run):
    run.note(kind="row", value=1)
    trace = run.path / "trace.jsonl"
    with trace.open("a") as file:
        file.write('{"kind": "ro')
    again = RunDirectory(run.path, CONFIG)
    again.begin()
    again.note(kind="row", value=2)
    lines, size = read_trace(trace)
    assert lines == again.trace == [{"kind": "row", "value": 1}, {"kind": "row", "value": 2}]
    assert size == trace.stat().st_size


def test_beginning_reads_what_another_process_noted_meanwhile(tmp_path):
    waiting = RunDirectory(tmp_path, CONFIG)
    first = RunDirectory(tmp_path, CONFIG)
    first.begin()
    first.note(kind="row", value=1)
    waiting.begin()
    assert waiting.trace == first.trace


@pytest.mark.parametrize("left", [[], [".config.json.x1.part"]])
def test_a_run_killed_as_it_began_can_begin(tmp_path, left):
    for name in left:
        (tmp_path / name).write_text("{")
    RunDirectory(tmp_path, CONFIG).begin()
    assert {file.name for file in tmp_path.iterdir()} == {"config.json"}


def test_half_written_files_of_a_killed_run_go(run):
    part = run.path / "seed-13" / ".head.safetensors.x1.part"
    part.parent.mkdir()
    part.write_bytes(b"half")
    RunDirectory(run.path, CONFIG).begin()
    assert not part.exists()


def test_a_directory_of_something_else_or_of_another_configuration_is_refused(tmp_path, run):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(RunDirectoryError, match="is not a run directory"):
        RunDirectory(tmp_path / "mine", CONFIG)
    with pytest.raises(RunDirectoryError, match=r"another configuration.*privacy\.epsilon"):
        RunDirectory(run.path, load_config(None, {"privacy.epsilon": 1.0}))


# -- a disk that fails -----------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["write", "fsync", "open"])
def test_a_disk_that_fails_is_a_named_error_that_says_what_to_do(run, monkeypatch, call):
    run.note(kind="row", value=1)
    before = {file: file.read_bytes() for file in run.path.rglob("*.jsonl")}

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(RunDirectoryError, match=r"trace\.jsonl.*No space left.*same --run-dir"):
            run.note(kind="row", value=2)
        with pytest.raises(RunDirectoryError, match=r"task-0\.safetensors could not be written"):
            run.seed(13).save("task 0", np.ones(3))
    assert run.trace == [{"kind": "row", "value": 1}]
    assert run.seed(13).load("task 0") is None
    assert not list(run.path.rglob(".*.part"))
    if call != "fsync":  # there the line is written, and only its durability in doubt
        assert {file: file.read_bytes() for file in before} == before


def test_files_are_whole_even_if_the_system_writes_a_few_bytes_at_a_time(run, monkeypatch):
    original = os.write
    monkeypatch.setattr(os, "write", lambda file, content: original(file, content[:7]))
    run.note(kind="row", text="für alle")
    run.seed(13).save("task 0", np.arange(40.0))
    assert RunDirectory(run.path, CONFIG).trace == run.trace
    assert run.seed(13).load("task 0").tolist() == np.arange(40.0).tolist()


# -- releases and who paid for them ----------------------------------------------------------------


@pytest.fixture
def federation(tmp_path):
    """Opens the ledger of the federation, again after every call."""
    ledgers = []

    def open_() -> Ledger:
        while ledgers:
            ledgers.pop().close()
        keys = EphemeralKeys(tmp_path / "federation" / "keys")
        ledgers.append(Ledger.at(tmp_path / "federation" / "ledger.jsonl", FEDERATION, keys))
        return ledgers[-1]

    yield open_
    for ledger in ledgers:
        ledger.close()


@pytest.fixture
def rounds(world):
    """Runs the tasks 0 .. count − 1 of the small world and returns what was released."""

    def go(count: int, ledger: Ledger, keep: SeedDirectory) -> list[np.ndarray]:
        plan, agreement = calibrate(Budget(8.0), 2), world.agreement()
        everyone = np.ones(world.population.count, dtype=bool)
        for task in range(count):
            cohort = world.population.cohort(task, everyone, plan.cap)
            Session(agreement, plan, ledger, keep).release(task, world.tasks[task], cohort)
        return [keep.load(f"task {task}") for task in range(count)]

    return go


def test_a_kept_release_carries_the_record_that_paid_for_it(run, federation, rounds):
    ledger = federation()
    rounds(1, ledger, run.seed(13, ledger))
    with (run.path / "seed-13" / "task-0.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    record = ledger.records[1]
    assert header["__metadata__"] == {"receipt": f"{ledger.id}/1/{record['hash']}"}
    assert record["kind"] == "charge"
    assert load_file(run.path / "seed-13" / "task-0.safetensors")["released"].ndim == 1


def test_a_run_goes_on_with_its_own_ledger_at_no_cost(run, federation, rounds):
    ledger = federation()
    [first] = rounds(1, ledger, run.seed(13, ledger))
    ledger = federation()
    again, _ = rounds(2, ledger, run.seed(13, ledger))
    assert again.tolist() == first.tolist()
    assert [charge.label for charge in ledger.charges] == ["task 0", "task 1"]


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("reset", "to another federation"),
        ("rolled back with its head", "record 3, but the ledger is shorter"),
        ("rolled back", "has 3 records, but there were 5"),
        ("deleted", "has 0 records"),
        ("another's", "to another federation"),
    ],
)
def test_a_run_does_not_go_on_with_a_ledger_that_did_not_pay(
    run, federation, rounds, tmp_path, what, named
):
    def resume() -> None:
        anew = federation()
        rounds(2, anew, run.seed(13, anew))

    path = tmp_path / "federation"
    ledger = federation()
    rounds(1, ledger, run.seed(13, ledger))
    ledger.close()
    shutil.copytree(path, tmp_path / "backup")
    ledger = federation()
    rounds(2, ledger, run.seed(13, ledger))
    ledger.close()
    if what in ("reset", "another's"):
        shutil.rmtree(path)
    elif what == "rolled back with its head":
        shutil.rmtree(path)
        shutil.copytree(tmp_path / "backup", path)
    elif what == "rolled back":
        shutil.copy(tmp_path / "backup" / "ledger.jsonl", path)
    else:
        (path / "ledger.jsonl").unlink()
    if what == "another's":  # with a charge of the same label that is still open
        other = federation()
        rounds(1, other, SeedDirectory(tmp_path / "elsewhere", other))
        other.close()
    with pytest.raises(LedgerCorrupted, match=named):
        resume()
    if what == "reset":
        assert federation().charges == ()


def test_a_kept_release_whose_receipt_is_damaged_is_refused(run, federation, rounds):
    ledger = federation()
    rounds(1, ledger, run.seed(13, ledger))
    file = run.path / "seed-13" / "task-0.safetensors"
    whole = file.read_bytes()
    for place in range(0, len(whole), 11):
        damaged = bytearray(whole)
        damaged[place] ^= 0x01
        file.write_bytes(damaged)
        with pytest.raises((RunDirectoryError, LedgerCorrupted), match=r"task-0|task 0"):
            rounds(1, ledger, run.seed(13, ledger))
    assert len(ledger.charges) == 1


def test_receipts_of_a_ledger_in_memory_hold_as_long_as_it_does(run, make_ledger, rounds):
    ledger = make_ledger(8.0)
    keep = run.seed(13, ledger)
    first = rounds(2, ledger, keep)
    assert [v.tolist() for v in rounds(2, ledger, keep)] == [v.tolist() for v in first]
    assert len(ledger.charges) == 2


@pytest.mark.parametrize(("mode", "folder"), [("simulated", 0o755), ("enforced", 0o700)])
def test_what_enforced_privacy_writes_is_its_owners_alone(tmp_path, mode, folder):
    """Elsewhere others may read, as far as the process's mask lets them."""
    settings = {"privacy.mode": mode}
    if mode == "enforced":
        settings["privacy.federation"] = tmp_path / "federation"
    directory = RunDirectory(tmp_path / "run", load_config(None, settings))
    before = os.umask(0o022)
    try:
        directory.begin()
        directory.seed(13).save_arrays("head", {"bias": np.zeros(3)})
    finally:
        os.umask(before)
    for path in (directory.path, directory.path / "seed-13"):
        assert stat.S_IMODE(path.stat().st_mode) == folder


def test_what_was_noted_is_given_back_as_it_stands_in_the_trace(run):
    run.note(kind="row", after=1)
    assert run.note(kind="row", after=2)["after"] == 2
    assert run.find(kind="row", after=2) == run.trace[-1]


def test_a_lock_that_was_never_had_closes_nothing(tmp_path, monkeypatch):
    closed: list[int] = []
    gc.collect()  # locks of other directories
    monkeypatch.setattr(os, "close", closed.append)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        _Lock(tmp_path / "nowhere")
    gc.collect()
    assert closed == []
