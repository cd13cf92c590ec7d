"""A damaged run directory or cache is refused, or mended by going on; never quietly believed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cslr.data.streams import Label, Rows, Stream, Task
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import EphemeralKeys
from cslr.privacy.mechanism import recall
from cslr.report.run_facts import _arrays
from cslr.research.theory.kept import load_run
from cslr.runs.directory import RunDirectory, SeedDirectory
from cslr.runs.predict import load_predictor
from cslr.runs.results import collect
from cslr.text.cache import EmbeddingCache

from .checks import differing, ledger_of, spent, unpaid
from .children import run_in_child
from .damage import by_file, flips, places, told, truncations, unnoticed
from .study import StandIn

pytestmark = pytest.mark.xdist_group("crash")

MOST = 400
"""Damages of each sort to a file; where it is longer than that, a sample."""
WHOLE_RUNS = 20
"""Damages of each sort to a noise key after which the whole run goes on."""


@pytest.fixture
def finished(cases):
    """A finished run, put back to what it was."""

    def make(kind):
        known = cases[kind]
        restore(known)
        return known

    return make


def restore(known, files=None):
    known.case.begin()
    for name, content in (files or known.files).items():
        path = known.case.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def plain(arrays):
    return {name: (array.shape, array.tobytes()) for name, array in arrays.items()}


def released(known):
    """What the next run would take as released, label by label."""
    ledger, kept = Ledger.read(known.case.ledger), SeedDirectory(known.case.kept)
    vectors = {}
    for charge in ledger.charges:
        vector = kept.load(charge.label)
        if vector is not None:  # as if it had never been kept: its release is repeated and paid
            vectors[charge.label] = recall(vector, charge.label, ledger).value
    return plain(vectors)


def head(known):
    """What `cslr predict` answers with."""
    predictor = load_predictor(known.case.run)
    return predictor.model, plain(vars(predictor.head))


def replay(known):
    """What `cslr quality` reads."""
    run = load_run(known.case.run)
    kept = run.replay(13)
    arrays = {"weights": kept.weights, "answers": kept.answers, "tasks": kept.tasks}
    arrays |= {"mean": kept.modes.mean, "covariance": kept.modes.covariance}
    arrays |= {"centre": kept.centre, "basis": kept.basis}
    return run.config, run.model, run.trace, plain(arrays)


def picture(known):
    """What `cslr report` draws."""
    return plain(_arrays(known.case.run / "seed-13" / "picture.safetensors"))


def figures(known):
    """What `cslr run` would print of a run that is finished."""
    case = known.case
    directory = RunDirectory(case.run, case.config())
    lines = [line for line in directory.trace if line["kind"] == "finished"]
    return bool(lines) and collect(case.config(), directory, stream_of(case)).as_json()


def stream_of(case):
    rows = Rows(("a row",), ((0,),), np.array([0]))
    names = range(case.tasks)
    return Stream(
        name="small",
        labels=tuple(Label(f"label{n}", f"{n} described") for n in names),
        tasks=tuple(Task(f"t{n}", (n,)) for n in names),
        train=rows,
        test=rows,
        public=("a sentence",),
        scenarios=("class",),
        clients=5,
    )


def embeddings(known):
    """What a run finds in the cache."""
    texts = known.case.rows.read_text().splitlines()[1:]
    texts = [line.split(",")[0] for line in texts]
    found, vectors = EmbeddingCache(known.case.root / "cache/embeddings/private").lookup(
        StandIn.id, texts
    )
    return found.tobytes(), vectors.tobytes()


NOT_READ_AGAIN = ("head.safetensors", "replay.safetensors", "picture.safetensors")
READERS = {
    "task-0.safetensors": ("sum", released),
    "task-0-list.safetensors": ("list", released),
    "task-0-means.safetensors": ("list", released),
    "head.safetensors": ("sum", head),
    "replay.safetensors": ("sum", replay),
    "picture.safetensors": ("sum", picture),
    "model.json": ("sum", head),
    "trace.jsonl": ("sum", figures),
    "config.json": ("sum", figures),
    "cache": ("sum", embeddings),
}


def file_of(known, name):
    if name == "cache":
        (path,) = known.case.root.glob("cache/embeddings/private/*/*.safetensors")
        return path
    (path,) = known.case.run.rglob(name)
    return path


def is_unfinished(known):
    """The first lines of a trace are those of a run that is not finished: the rest is done again.

    That it ends the same then is for ``test_a_run_over_a_damaged_file_refuses_or_ends_the_same``.
    """

    def is_fine(damaged, found):
        return known.files["run/trace.jsonl"].startswith(damaged) and found is False

    return is_fine


def unnoticed_in(known, name, read, most):
    path = file_of(known, name)
    content = path.read_bytes()
    damages = [*truncations(content, most), *flips(content, most)]
    fine = is_unfinished(known) if name == "trace.jsonl" else lambda damaged, found: False
    return unnoticed(path, damages, lambda: read(known), fine), len(damages)


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_noticed_by_whoever_reads_it(finished, name):
    kind, read = READERS[name]
    wrong, _ = unnoticed_in(finished(kind), name, read, 12)
    assert wrong == []


@pytest.mark.trust
def test_a_file_damaged_at_any_byte_is_noticed_by_whoever_reads_it(finished, card):
    wrong, count = [], 0
    for name, (kind, read) in READERS.items():
        more, damages = unnoticed_in(finished(kind), name, read, MOST)
        wrong, count = wrong + more, count + damages
    figure = told(wrong, count)
    if wrong:
        figure += "; not: " + ", ".join(f"{name} {n}" for name, n in by_file(wrong).items())
    card("corrupted files", "every truncation and flip detected", figure, not wrong)
    assert by_file(wrong) == {}


def changed(known, name):
    """Files that end another way; JSON may be spelt otherwise, with a blank less at its end.

    A finished run does not read these again: those who do are asked above.
    """
    found = differing(known.case, known.files)
    if found == [name] and name.endswith(NOT_READ_AGAIN):
        return []
    if found == [name] and name.endswith(".json"):
        now = json.loads((known.case.root / name).read_bytes())
        return [] if now == json.loads(known.files[name]) else found
    return found


@pytest.mark.trust
def test_a_run_over_a_damaged_file_refuses_or_ends_the_same(finished, cases, card):
    """The whole run again over the end of one, with any one of its files damaged or gone."""
    known, wrong, count = finished("sum"), [], 0
    inputs = ("rows.csv", "rows.cslr.toml", "public.txt")
    for name, content in known.files.items():
        if name in inputs:
            continue
        damages = [*truncations(content, 3), *[*flips(content, 4)][1:3], ("gone", None)]
        for what, damaged in damages:
            count += 1
            restore(known)
            path = known.case.root / name
            path.unlink() if damaged is None else path.write_bytes(damaged)
            end = run_in_child(known.case)
            if end.end == "finished":
                trouble = changed(known, name) + unpaid(known.case)
                wrong += [f"{name}, {what}: {each}" for each in trouble]
            elif end.end != "refused":
                wrong.append(f"{name}, {what}: {end.end} {end.error} {end.message}")
    card("going on over a damaged file", "refused, or the same end", told(wrong, count), not wrong)
    assert wrong == []


@pytest.fixture
def half_way(cases):
    """A run killed when its first sum was charged and not yet kept; and its key's file."""
    known = cases["sum"]
    known.case.begin()
    assert run_in_child(known.case, known.key_made_and_nothing_kept[-1]).end == "killed"
    (key,) = (known.case.federation / "keys").iterdir()
    files = {
        str(path.relative_to(known.case.root)): path.read_bytes()
        for path in known.case.root.rglob("*")
        if path.is_file()
    }
    return known, files, str(key.relative_to(known.case.root))


def troubles_with_key(known, files, name, damaged):
    """Without its key a charge cannot be used again: another is due, and the budget ends early."""
    restore(known, {**files, name: damaged})
    end = run_in_child(known.case)
    wrong = unpaid(known.case)
    if (end.end, end.error) != ("refused", "BudgetExceeded"):
        wrong.append(f"{end.end} {end.error} {end.message}")
    charges = [charge.label for charge in ledger_of(known.case).charges]
    if charges != ["task 0", "task 0", "task 1"] or not spent(known.case) > 0:
        wrong.append(f"charged: {charges}")
    return wrong


def test_a_damaged_noise_key_is_never_used(half_way):
    known, files, name = half_way
    for damaged in (files[name][:31], b"", *[content for _, content in [*flips(files[name], 3)]]):
        assert troubles_with_key(known, files, name, damaged) == []


def is_used(known, name, damaged, charge):
    """Whether the ledger would finish the interrupted release from this file of key and sum."""
    (known.case.root / name).write_bytes(damaged)
    federation = known.case.federation
    read = Ledger.read(known.case.ledger)
    with Ledger.at(
        known.case.ledger, read.federation, EphemeralKeys(federation / "keys")
    ) as ledger:
        return ledger.interrupted(charge) is not None


@pytest.mark.trust
def test_a_noise_key_damaged_at_any_byte_is_never_used(half_way, card):
    """Every damage is shown to the ledger; with some of each sort the whole run goes on."""
    known, files, name = half_way
    sorts = [[*truncations(files[name])], [*flips(files[name])]]
    restore(known, files)
    (charge,) = ledger_of(known.case).charges
    assert is_used(known, name, files[name], charge)
    damages = [damage for sort in sorts for damage in sort]
    wrong = [what for what, damaged in damages if is_used(known, name, damaged, charge)]
    whole = [sort[at] for sort in sorts for at in places(len(sort), WHOLE_RUNS)]
    for what, damaged in whole:
        troubles = troubles_with_key(known, files, name, damaged)
        wrong += [f"{what}: {trouble}" for trouble in troubles]
    figure = f"{len(damages)} damages, {len(whole)} of them in whole runs, {len(wrong)} used"
    card("corrupted noise key", "never used", figure, not wrong)
    assert wrong == []
