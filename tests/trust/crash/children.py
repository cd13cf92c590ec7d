"""Processes that may die: a forked child of this warm one, and what became of it."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from cslr.errors import CslrError

from .points import Points
from .study import Case, whole_run

_LONGEST = 60  # seconds until a child that hangs is ended


@dataclass(frozen=True)
class Outcome:
    """How a child ended."""

    end: str
    """``finished``, ``refused`` (a CslrError), ``failed`` (an OSError), ``crashed`` (anything
    else), or ``killed``."""
    error: str = ""
    message: str = ""
    points: tuple[str, ...] = ()


def run_in_child(case: Case, at: int | None = None, how: str = "kill") -> Outcome:
    """The whole run in a child that is struck at point ``at``."""
    return outcome_of(start_child(case, at, how))


@dataclass(frozen=True)
class Child:
    """A running child and where it will report."""

    pid: int
    report: int


def start_child(case: Case, at: int | None = None, how: str = "kill") -> Child:
    """The same, without waiting for its end."""
    points = Points(case.root, at, how)
    return _forked(lambda: whole_run(case, points), points)


def outcome_of(child: Child) -> Outcome:
    """Wait for the end of a child."""
    with os.fdopen(child.report) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child.pid, 0)
    if os.WIFSIGNALED(status):
        return Outcome("killed", signal.Signals(os.WTERMSIG(status)).name)
    end, error, message, points = json.loads(said)
    return Outcome(end, error, message, tuple(points))


def _forked(work: Callable[[], None], points: Points) -> Child:
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        return Child(pid, reading)
    try:  # the child never returns from here
        os.close(reading)
        signal.alarm(_LONGEST)
        said = json.dumps([*_end_of(work), points.names]).encode()
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(said)
    finally:
        os._exit(0)


def _end_of(work: Callable[[], None]) -> tuple[str, str, str]:
    try:
        work()
    except CslrError as error:
        return "refused", type(error).__name__, str(error)
    except OSError as error:
        return "failed", type(error).__name__, str(error)
    except BaseException as error:
        return "crashed", type(error).__name__, traceback.format_exc()
    return "finished", "", ""
