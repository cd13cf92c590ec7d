"""One small world for all tests: a public corpus, four labels, twelve clients, two tasks."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from cslr.config import Config
from cslr.federation.simulation import Population
from cslr.methods.method import MethodContext
from cslr.methods.registry import METHODS
from cslr.paper_constants import PaperConstants
from cslr.privacy.accounting import Scope
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import EphemeralKeys, SeededKeys
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.protocol.agreement import Agreement
from cslr.protocol.head import Family, FamilyName
from cslr.protocol.ports import Examples
from cslr.protocol.public_space import Modes, PublicSpace, build_space, declare_modes
from cslr.protocol.step1_list import ListLearner
from cslr.seeding import Seeds

os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch reads it when it is first imported

# A busy machine makes any example slow: how long one takes says nothing about the code.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

LONGEST = ("cli", "trust", "runs", "research", "methods", "text")
"""Folders whose tests begin, the longest first: short files at the end keep all workers busy."""

TASKS = ((0, 1), (2, 3))
SUB_TOPICS = 2
WIDTH = 24  # d
TOPICS = 2 * WIDTH  # at right angles or opposite; the first eight belong to labels, two each


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a file in one worker, so that its fixtures are made once."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return  # one process: in the order that was asked for
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(_folder(item), len(rank)))


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


def unit(z: np.ndarray) -> np.ndarray:
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False, repr=False)
class World:
    """Labels 0..3 with two sub-topics each; other public topics differ less."""

    public: np.ndarray  # (n, d)
    texts: np.ndarray  # (c, d)
    population: Population
    test_z: np.ndarray
    test_labels: np.ndarray
    sub_topics: np.ndarray  # (n_train,) 0 or 1 within the label: what nobody is told
    tasks: tuple[tuple[int, ...], ...] = TASKS

    @property
    def test_tasks(self) -> np.ndarray:
        return self.test_labels // 2

    @property
    def test_shares(self) -> np.ndarray:
        """(T, c) each label's share of the test rows of a task."""
        counts = np.zeros((len(self.tasks), len(self.texts)))
        np.add.at(counts, (self.test_tasks, self.test_labels), 1.0)
        return counts / counts.sum(axis=1, keepdims=True)

    def family(self, name: FamilyName = "classification") -> Family:
        return Family(name, len(self.texts))

    def told(self, name: FamilyName) -> World:
        """The same rows with targets: a second label for every third, or B- and I- by turns."""
        family, labels = self.family(name), self.population.labels
        place = np.arange(len(labels))
        if name == "tagging":
            tags = np.where(labels > 0, 2 * labels - (place % 3 > 0), 0)  # two B- for an I-
            answers = tags[:, None].tolist()
        else:
            second = (labels + 1) % len(self.texts)
            answers = [
                [first, other] if i % 3 == 0 and name == "intents" else [first]
                for i, first, other in zip(place, labels.tolist(), second.tolist(), strict=True)
            ]
        targets = family.targets(answers)
        return replace(self, population=replace(self.population, targets=targets))

    def examples(self, task: int) -> Examples:
        """What all clients hold of a task, in one padded stack."""
        people = self.population
        rows = [
            np.flatnonzero((people.tasks == task) & (people.clients == i))
            for i in range(people.count)
        ]
        longest = max(len(each) for each in rows)
        index = np.stack([np.resize(each, longest) for each in rows])
        mask = np.arange(longest) < np.array([len(each) for each in rows])[:, None]
        clients = tuple(range(people.count))
        targets = None if people.targets is None else people.targets[index]
        return Examples(people.z[index], people.labels[index], mask, clients, targets)

    def space(self, dimension: int = 8, anchors: int = 24, seed: int = 13) -> PublicSpace:
        return space_of(self, dimension, anchors, seed)

    def modes(
        self, space: PublicSpace, sub_modes: int = 1, prior: str = "labels", pooled: bool = False
    ) -> Modes:
        rng, groups = Seeds(13).at("prototypes"), self.tasks if pooled else None
        return declare_modes(space, self.public, self.texts, sub_modes, prior, rng, groups)

    def agreement(
        self,
        sub_modes: int = 1,
        list_size: int = 1,
        prior: str = "labels",
        matcher: str = "signature",
        second_moments: str = "shared",
        bound: float = 0.2,
        seed: int = 13,
        weight_floor: float = 0.05,
        family: FamilyName = "classification",
        pooled: bool = False,
        **more: object,
    ) -> Agreement:
        space = self.space(seed=seed)
        return Agreement(
            space,
            self.modes(space, sub_modes, prior, pooled),
            ListLearner(size=list_size, weight_floor=weight_floor),
            matcher,
            second_moments,
            seed,
            self.population.count,
            self.family(family),
            **{"bounds": (bound,), **more},
        )


@cache
def space_of(world: World, dimension: int, anchors: int, seed: int) -> PublicSpace:
    return build_space(world.public, "synthetic", dimension, anchors, Seeds(seed).at("anchors"))


def make_world(clients: int = 12, rows: int = 480, seed: int = 0) -> World:
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]
    centres = np.concatenate([axes, -axes])

    length = np.where(np.arange(TOPICS) % WIDTH < 8, 1.0, 0.6)

    def near(topics: np.ndarray) -> np.ndarray:
        z = centres[topics] + 0.1 * rng.standard_normal((len(topics), WIDTH))
        return unit(z) * length[topics, None]

    topics = rng.integers(8, size=rows)
    tested = np.repeat(np.arange(8), 10)
    labels = topics // SUB_TOPICS
    return World(
        public=near(rng.integers(TOPICS, size=600)),
        texts=unit(centres[:8].reshape(4, SUB_TOPICS, WIDTH).mean(axis=1)),
        population=Population(
            z=near(topics),
            labels=labels,
            tasks=labels // 2,
            clients=rng.integers(clients, size=rows),
            count=clients,
        ),
        test_z=near(tested),
        test_labels=tested // SUB_TOPICS,
        sub_topics=topics % SUB_TOPICS,
    )


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Matrices this small are slower on two threads, up to a thousandfold on a busy machine."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def world() -> World:
    return make_world()


@dataclass
class Drawer:
    """A ``Keep`` in memory."""

    kept: dict[str, np.ndarray] = field(default_factory=dict)

    def load(self, label: str) -> np.ndarray | None:
        return self.kept.get(label)

    def save(self, label: str, vector: np.ndarray) -> None:
        self.kept[label] = vector


@pytest.fixture(scope="session")
def make_drawer():
    """A new drawer each time."""
    return Drawer


@pytest.fixture
def drawer() -> Drawer:
    return Drawer()


def ledger_of(epsilon: float = np.inf, seed: int = 13, scope: Scope = "end_to_end") -> Ledger:
    federation = Federation("test", Budget(epsilon, scope=scope), "simulated")
    return Ledger.in_memory(federation, SeededKeys(Seeds(seed)))


@pytest.fixture(scope="session")
def make_ledger():
    """A ledger in memory with a budget of ε: ``make_ledger(epsilon, seed, scope)``."""
    return ledger_of


@pytest.fixture
def enforced_ledger(tmp_path):
    """A ledger in memory whose keys are the operating system's: ``enforced_ledger(epsilon)``."""

    def make(epsilon: float = np.inf) -> Ledger:
        federation = Federation("test", Budget(epsilon), "enforced")
        return Ledger.in_memory(federation, EphemeralKeys(tmp_path / "keys"))

    return make


@pytest.fixture(scope="session")
def make_context_with(world):
    """A whole run of a method in the small world, settled and calibrated as a real one is.

    ``make_context_with(keep, epsilon, q, cap, seed, family, method, head, **replay)``; constants of
    the paper are given among ``replay``.
    """

    def make(
        keep: Drawer,
        epsilon: float = np.inf,
        q: float = 1.0,
        cap: int | None = None,
        seed: int = 13,
        family: FamilyName = "classification",
        method: str = "cslr",
        head: Mapping[str, object] | None = None,
        **replay: object,
    ) -> MethodContext:
        known = METHODS[method]
        paper = {name: replay.pop(name) for name in PaperConstants.model_fields if name in replay}
        settings = {"replay": {"dimension": 8, **replay}, "head": head or {}}
        settings["paper"] = {"m": 24, "n_r": 40, **paper}
        config = known.settled(Config.model_validate(settings))
        schedule = known.schedule(config) if known.reads == "privately" else Schedule()
        head_q = known.head_q or q
        scope: Scope = "replay" if config.head.kind == "federated" else "end_to_end"
        return MethodContext(
            clients=world.told(family).population,
            tasks=world.tasks,
            family=world.family(family),
            label_texts=world.texts,
            topics=None,
            public=world.public,
            encoder="synthetic",
            replay=config.replay,
            head=config.head,
            constants=config.paper,
            plan=calibrate(Budget(epsilon), len(world.tasks), q, cap, schedule, head_q),
            ledger=ledger_of(epsilon, seed, scope),
            seeds=Seeds(seed),
            test_shares=world.test_shares,
            keep=keep,
            reads=known.reads,
        )

    return make


@pytest.fixture
def make_context(make_context_with, drawer):
    """The same with the drawer of the test: ``make_context(epsilon, q, cap, ...)``."""
    return partial(make_context_with, drawer)


@pytest.fixture(scope="session")
def cache(request, tmp_path_factory) -> Path:
    """Embeddings of all tests and workers: found by content, written without a lock.

    ``CSLR_TEST_EMBEDDINGS`` names a directory that is kept from one session to the next.
    """
    root = tmp_path_factory.getbasetemp()
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    shared = root.parent if worker else root
    place = Path(os.environ.get("CSLR_TEST_EMBEDDINGS") or shared / "embeddings")
    place.mkdir(exist_ok=True)
    if worker and any(_folder(item) == "cli" for item in request.session.items):
        _embed_streams(place, first=int(worker.removeprefix("gw")))
    return place


def _embed_streams(place: Path, first: int) -> None:
    """Embed the streams that come with the package once for all workers.

    Each worker begins with another stream and waits for those that others have begun.
    """
    from cslr.config import load_config
    from cslr.runs.embedded import load_embedded

    streams = ("clinic", "ward", "desk")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CSLR_CACHE_DIR", str(place))
        for turn in range(len(streams)):
            name = streams[(first + turn) % len(streams)]
            with (place / f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                load_embedded(load_config(None, {"stream.name": name}))


@pytest.fixture
def pictures():
    """For tests that look at the pictures of a run: without it ``cslr`` leaves them blank."""


def _blank(self: object, file: IO[Any], format: str, **_: object) -> None:
    """In place of ``Figure.savefig``."""
    file.write("<svg></svg>" if format == "svg" else b"\x89PNG")


def _leave_pictures_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laying out and drawing take longer than a small run."""
    backends = "matplotlib.backends.backend_"
    blank: dict[str, Any] = {
        "matplotlib.figure.Figure.savefig": _blank,
        f"{backends}svg.FigureCanvasSVG.print_svg": lambda _, file, **__: file.write("<svg></svg>"),
        f"{backends}agg.FigureCanvasAgg.print_png": lambda _, file, **__: file.write(b"\x89PNG"),
        "cslr.report.charts.lay_out": lambda _: None,
    }
    for name, function in blank.items():
        monkeypatch.setattr(name, function)


@pytest.fixture
def cslr(request, cache, tmp_path, monkeypatch, capsys):
    """Call the program in an empty directory: (exit code, standard output, standard error)."""
    from cslr.cli.main import main

    if "pictures" not in request.fixturenames:
        _leave_pictures_blank(monkeypatch)
    monkeypatch.setenv("CSLR_CACHE_DIR", str(cache))
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cslr", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return int(stop.value.code or 0), output.out, output.err

    return call


@pytest.fixture
def steps_of():
    """``steps_of(call)``: bytecodes it executes, work that no busy machine makes more or less."""

    def count(call: Callable[[], object]) -> int:
        steps = 0

        def trace(frame, event, _):
            nonlocal steps
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            steps += event == "opcode"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(before)
        return steps

    return count
