"""Run many cells on a few processes; a failed cell does not stop the others.

A worker is a process with one thread for BLAS and one for torch, so a trace does not depend on
the number of cores. Each has its own queue, so the cell of a killed process is known: it is
retried once in a new process, from its own trace. A study is an embedded stream that cells share.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cslr.config import Config
from cslr.errors import CslrError
from cslr.files import write_atomic
from cslr.research.experiments.grid import STUDIES_KEPT, Cell, plain_config
from cslr.research.experiments.places import Places

__all__ = ["Done", "Trouble", "choose_study", "run_cells"]

_ONE_THREAD: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_TRIES: Final = 2
"""How often a cell is started if its process is killed each time."""


class Trouble(NamedTuple):
    """Why a cell failed: a line for the screen, and details for the file."""

    summary: str
    details: str


class Done(NamedTuple):
    """A cell that ended, successfully if ``trouble`` is None; ``again``: it will be retried."""

    cell: Cell
    trouble: Trouble | None
    again: bool = False


def run_cells(
    cells: Iterable[Cell],
    places: Places,
    workers: int = 2,
    on_study: Callable[[Config], None] = lambda study: None,
) -> Generator[Done]:
    """Run the unfinished cells, and yield each as it ends.

    Failures are recorded at ``places.failure`` and retried by the next call. If the iterator is
    closed, or an interrupt passes through it, the workers are stopped; unfinished cells resume from
    their own traces next time. on_study: called whenever a worker begins to load a study.
    """
    queue = _Queue.of(cell for cell in cells if not places.trace(cell.name).exists())
    others = set(multiprocessing.active_children())
    crew = [_Worker() for _ in range(min(workers, len(queue)))]
    jobs: list[_Job] = []
    try:
        while queue.waiting or jobs:
            _assign(queue, crew, jobs, places, on_study)
            wait([job.future for job in jobs], return_when=FIRST_COMPLETED)
            ended = [job for job in jobs if job.future.done()]
            jobs = [job for job in jobs if job not in ended]
            for job in ended:
                done = job.end(queue)
                _keep(done, places)
                yield done
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        for worker in crew:
            worker.executor.shutdown(cancel_futures=True)


def choose_study(
    waiting: Mapping[Config, Sequence[Cell]], held: Sequence[Config], elsewhere: Iterable[Config]
) -> Config:
    """The study for a free worker, so that each study is loaded as rarely as possible.

    held: the studies in the worker's memory, of which the latest is preferred. elsewhere: those in
    the memory of other workers, which are avoided. Else the study with most waiting cells.
    """
    for study in reversed(held):
        if study in waiting:
            return study
    taken = set(elsewhere)
    free = [study for study in waiting if study not in taken]
    return max(free or waiting, key=lambda study: len(waiting[study]))


@dataclass
class _Queue:
    """Waiting cells by study, and how often each cell's process was killed."""

    waiting: dict[Config, list[Cell]] = field(default_factory=dict)
    killed: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, cells: Iterable[Cell]) -> _Queue:
        """Everything waits, in the order given."""
        queue = cls()
        for cell in cells:
            queue.waiting.setdefault(cell.study, []).append(cell)
        return queue

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values()))

    def take(self, study: Config) -> Cell:
        """The first cell that needs this study; it waits no longer."""
        cells = self.waiting[study]
        cell = cells.pop(0)
        if not cells:
            del self.waiting[study]
        return cell

    def put_back(self, cell: Cell) -> bool:
        """Queue a cell whose process was killed again, unless that happened too often; whether."""
        self.killed[cell.name] = self.killed.get(cell.name, 0) + 1
        if self.killed[cell.name] >= _TRIES:
            return False
        self.waiting.setdefault(cell.study, []).insert(0, cell)
        return True


class _Worker:
    """One process at a time, and the studies it has in memory, the latest last."""

    def __init__(self) -> None:
        self.executor = _executor()
        self.held: list[Config] = []

    def begin(self, cell: Cell, places: Places) -> Future[Trouble | None]:
        """Hand a cell over."""
        try:
            future = self.executor.submit(_work, cell, places)
        except BrokenProcessPool:  # the process was killed while it was idle
            self.renew()
            future = self.executor.submit(_work, cell, places)
        others = [study for study in self.held if study != cell.study]
        self.held = [*others, cell.study][-STUDIES_KEPT:]
        return future

    def renew(self) -> None:
        """Start a new process in place of one that was killed."""
        self.executor.shutdown(wait=False)
        self.executor, self.held = _executor(), []


@dataclass(frozen=True, eq=False)
class _Job:
    """A cell that a worker is running."""

    worker: _Worker
    cell: Cell
    future: Future[Trouble | None]

    def end(self, queue: _Queue) -> Done:
        """The result; a cell whose process was killed may go back to the queue."""
        try:
            return Done(self.cell, self.future.result())
        except BrokenProcessPool:
            self.worker.renew()
            again = queue.put_back(self.cell)
            return Done(self.cell, _killed(again), again)


def _assign(
    queue: _Queue,
    crew: Sequence[_Worker],
    jobs: list[_Job],
    places: Places,
    on_study: Callable[[Config], None],
) -> None:
    """Give every idle worker a cell, while there are any."""
    for worker in crew:
        if queue.waiting and all(job.worker is not worker for job in jobs):
            elsewhere = [study for other in crew if other is not worker for study in other.held]
            study = choose_study(queue.waiting, worker.held, elsewhere)
            if study not in worker.held:
                on_study(study)
            cell = queue.take(study)
            jobs.append(_Job(worker, cell, worker.begin(cell, places)))


def _executor() -> ProcessPoolExecutor:
    """One process, spawned and not forked: a forked child would inherit NumPy and its threads."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(max_workers=1, mp_context=context, initializer=_prepare)


def _prepare() -> None:
    """Set the threads before NumPy is imported; ignore interrupts; end with the parent."""
    os.environ.update(_ONE_THREAD)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(cell: Cell, places: Places) -> Trouble | None:
    """Run one cell in a worker. Exceptions become text, since not all can be pickled."""
    try:
        from cslr.research.experiments.cell import run_cell

        run_cell(cell, places)
    except Exception as error:
        text = str(error) if isinstance(error, CslrError) else f"{type(error).__name__}: {error}"
        return Trouble(text.partition("\n")[0], traceback.format_exc())
    return None


def _killed(again: bool) -> Trouble:
    """The failure of a process that was killed."""
    then = "it is retried in a new process" if again else f"this was attempt {_TRIES} of {_TRIES}"
    text = f"the process that ran it was killed (out of memory?); {then}"
    return Trouble(text, text)


def _keep(done: Done, places: Places) -> None:
    """Record a failure, or remove the record once the cell succeeds."""
    file = places.failure(done.cell.name)
    if done.trouble is None:
        file.unlink(missing_ok=True)
    elif not done.again:
        config = json.dumps(plain_config(done.cell.config), indent=2)
        text = f"{done.cell.title}\n\n{done.trouble.details.rstrip()}\n\n{config}\n"
        write_atomic(file, text.encode())
