"""Progress in logs and pipes."""

from __future__ import annotations

import io

from rich.console import Console

from cslr.cli.show.run import StepLines, steps
from cslr.text.progress_bar import progress_bar


def test_the_first_step_is_printed_and_then_a_line_every_so_often():
    now, lines = [0.0], []
    tell = StepLines(lines.append, every=10.0, clock=lambda: now[0])
    for second in range(0, 25, 4):
        now[0] = second
        tell("seed 1", second, 25)
    assert lines == ["[    0 s] 0/25 seed 1", "[   12 s] 12/25 seed 1", "[   24 s] 24/25 seed 1"]


def test_a_pipe_gets_lines_and_quiet_gets_none():
    for quiet, expected in ((False, 1), (True, 0)):
        pipe = io.StringIO()
        with steps(Console(file=pipe), quiet) as tell:
            tell("[not markup]", 1, 2)
        assert pipe.getvalue().count("1/2 [not markup]") == expected
        assert pipe.getvalue().count("\n") == expected


def test_a_long_embedding_says_so_in_a_pipe(capsys):
    with progress_bar(1000, wanted=True) as bar:
        bar.advance(500)
    with progress_bar(1000, wanted=False) as bar:
        bar.advance(500)
    assert capsys.readouterr().err == "encoding texts: 0/1000\n"


def test_lines_that_may_not_depend_on_time_are_all_steps_without_seconds():
    pipe = io.StringIO()
    with steps(Console(file=pipe), timed=False) as tell:
        tell("seed 1", 0, 2)
        tell("seed 1", 1, 2)
    assert pipe.getvalue() == "0/2 seed 1\n1/2 seed 1\n"
