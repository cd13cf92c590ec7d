"""What is declared about the rows of a federation, without any of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cslr.data.streams import load_stream
from cslr.errors import ConfigError, CslrError
from cslr.runs.deployment.source import (
    Source,
    _of_tasks,
    source_of_declaration,
    source_of_stream,
)

CLINICS = Path(__file__).parents[3] / "examples" / "clinics" / "clinics.cslr.toml"


@dataclass(frozen=True)
class Promise:
    """What a founder wants."""

    unit: str = "person"
    epsilon: float = 2.5
    delta: float = 1e-6
    members: int = 7
    rounds: int = 0


def test_a_stream_with_the_program_is_known_without_its_rows_but_with_its_people():
    whole = load_stream("clinic", None)
    public = source_of_stream("clinic", None, "minilm", 13).without_rows()
    assert len(public.train) == len(public.test) == 0
    assert public.people == whole.registered_people > 0
    assert (public.labels, public.tasks, public.public) == (whole.labels, whole.tasks, whole.public)


def test_the_first_tasks_of_a_stream_have_their_own_rows_and_no_others():
    whole, few = load_stream("clinic", None), source_of_stream("clinic", 2, "minilm", 13)
    part = few.with_rows()
    assert part.tasks == whole.tasks[:2]
    for rows, everything in ((part.train, whole.train), (part.test, whole.test)):
        kept = np.flatnonzero(everything.tasks < 2)
        assert 0 < len(kept) < len(everything)
        assert rows.texts == tuple(everything.texts[n] for n in kept)
        assert rows.answers == tuple(everything.answers[n] for n in kept)
        np.testing.assert_array_equal(rows.tasks, everything.tasks[kept])
        for name in ("people", "clients", "kinds"):
            before, after = getattr(everything, name), getattr(rows, name)
            assert (before is None) == (after is None)
            if before is not None:
                np.testing.assert_array_equal(after, before[kept])
    np.testing.assert_array_equal(_of_tasks(whole.train, 4).tasks, whole.train.tasks)


def test_as_many_tasks_as_a_stream_has_may_be_learnt_and_no_more():
    assert len(source_of_stream("clinic", 4, "minilm", 13).with_rows().tasks) == 4
    with pytest.raises(ConfigError, match="'clinic' has 4 tasks, not 5"):
        source_of_stream("clinic", 5, "minilm", 13).with_rows()


def test_only_streams_with_the_program_can_be_shared_out():
    with pytest.raises(ConfigError, match=r"--stream reviews: only .* for rows of your own use"):
        source_of_stream("reviews", None, "minilm", 13)
    with pytest.raises(ConfigError, match="neither an embedded stream nor a declaration"):
        Source().without_rows()


@pytest.mark.parametrize(("rounds", "kind"), [(0, "released"), (3, "rounds")])
def test_everything_is_computed_from_one_configuration_with_the_promise_in_it(rounds, kind):
    source = source_of_stream("clinic", 2, "minilm", 17)
    config = source.config(Promise(rounds=rounds))
    privacy = config.privacy
    assert (privacy.epsilon, privacy.delta, privacy.unit) == (2.5, 1e-6, "person")
    assert privacy.mode == "enforced"
    assert (config.seeds, config.encoder) == ((17,), "minilm")
    assert (config.stream.name, config.stream.clients) == ("clinic", 7)
    assert config.head.kind == kind
    if rounds:
        assert config.head.rounds == rounds


def test_clients_of_declared_rows_are_those_that_were_declared():
    source = source_of_declaration(CLINICS, "minilm", 13)
    config = source.config(Promise())
    assert config.stream.clients is None
    stream = source.without_rows()
    assert config.stream.name == stream.name
    assert len(stream.train) == len(stream.test) == 0
    assert stream.partition == "given"
    assert len(stream.public) >= 100
    assert source.declared().clients == stream.clients


def test_parties_with_the_same_declaration_have_the_same_digest_and_others_another():
    one = source_of_declaration(CLINICS, "minilm", 13)
    assert source_of_declaration(CLINICS, "minilm", 13).digest == one.digest
    others = [
        one.model_copy(update=change)
        for change in ({"seed": 14}, {"encoder": "other"}, {"public": one.public[1:]})
    ]
    assert len({each.digest for each in (one, *others)}) == 4
    assert len(bytes.fromhex(one.digest)) == 32


@pytest.mark.parametrize(("text", "why"), [("= no toml", "line 1"), ('name = "x"', "clients")])
def test_a_damaged_declaration_is_refused_with_what_is_wrong(text, why):
    with pytest.raises(ConfigError, match=f"declaration of the federation is not valid: .*{why}"):
        Source(declaration=text).declared()


def test_a_declaration_needs_public_sentences_and_must_be_confirmed(tmp_path):
    text = CLINICS.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("public")]
    (tmp_path / "a.cslr.toml").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ConfigError, match="names no public sentences; add public = FILE"):
        source_of_declaration(tmp_path / "a.cslr.toml", "minilm", 13)
    (tmp_path / "b.cslr.toml").write_text(
        text.replace("confirmed = true", "confirmed = false"), encoding="utf-8"
    )
    with pytest.raises(CslrError, match="confirmed"):
        source_of_declaration(tmp_path / "b.cslr.toml", "minilm", 13)
