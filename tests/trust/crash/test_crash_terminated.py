"""SIGTERM to the real program while it releases and while it learns: it ends, and goes on later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from cslr.data.streams import load_stream
from cslr.files import open_line
from cslr.text.cache import EmbeddingCache
from cslr.text.encoders import load_encoder

pytestmark = [pytest.mark.trust, pytest.mark.xdist_group("crash")]

WIDTH = 384
PROMPT = 10.0  # seconds, on a busy machine
SMALL = {"replay.dimension": 16, "paper.m": 20, "paper.n_r": 10}


@pytest.fixture
def program(tmp_path):
    """Start `cslr run` on the embedded stream; its cache knows every text already."""
    stream = load_stream("clinic", None)
    texts = [*stream.train.texts, *stream.test.texts, *stream.public]
    for label in stream.labels:
        texts += [label.description, *label.topics]
    vectors = np.random.default_rng(1).standard_normal((len(texts), WIDTH))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for part in ("public", "private"):
        cache = EmbeddingCache(tmp_path / "cache" / "embeddings" / part)
        cache.store(load_encoder().id, texts, vectors)
    settings = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    environment = {**os.environ, "CSLR_CACHE_DIR": str(tmp_path / "cache")}

    def start(directory):
        words = ["run", "--no-yardsticks", "--json", "--run-dir", str(directory), *settings]
        command = [sys.executable, "-c", "from cslr.cli.main import main; main()", *words]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    return start


def finish(process):
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()


def terminate_when(process, reached):
    """Wait for a phase, ask the process to end, and say how long it took."""
    deadline = time.monotonic() + 120
    while not reached():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode != 0
    return time.monotonic() - asked


def lasting(directory):
    """What a run leaves, without how long it took, what it is called and where it lies."""
    name = directory.name.encode()
    files = {
        path.relative_to(directory).as_posix(): path.read_bytes().replace(name, b"RUN")
        for path in directory.rglob("*")
        if path.is_file() and path.suffix not in (".part", ".png")
    }
    trace = [open_line(line) for line in files.pop("trace.jsonl").splitlines()]
    result = json.loads(files.pop("result.json"))
    for plain in (*trace, result):
        plain.pop("seconds", None)
        plain.pop("run_dir", None)
    return files, trace, result


def test_a_terminated_program_ends_at_once_and_its_run_can_go_on(program, tmp_path, card):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finish(program(whole))
    kept, trace = broken / "seed-13" / "task-1.safetensors", broken / "trace.jsonl"
    phases = {
        "releasing": kept.exists,
        "learning": lambda: '"after": 3' in trace.read_text(),
    }
    slowest, seen = 0.0, {}
    for reached in phases.values():
        slowest = max(slowest, terminate_when(program(broken), reached))
        now = {path: path.read_bytes() for path in broken.glob("seed-13/task-*.safetensors")}
        assert all(now[path] == content for path, content in seen.items())
        seen = now
    finish(program(broken))
    same = lasting(broken) == lasting(whole)
    card(
        "SIGTERM to `cslr run`",
        "ends promptly, nothing lost, goes on identically",
        f"{len(phases)} phases, at most {slowest:.1f} s, {'identical' if same else 'different'}",
        same and slowest < PROMPT,
    )
    assert slowest < PROMPT
    assert same
