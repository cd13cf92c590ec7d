"""What a debugger, a test runner or an error tracker shows of a private value: nothing it holds.

Tools that record local variables print them by ``repr``, far from where the rows are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cslr
from cslr.api.persons import PeopleOfRows
from cslr.api.streamed import Arguments
from cslr.data.own.draft import Seen
from cslr.data.own.load import OwnData
from cslr.data.own.parse.row import OwnRow
from cslr.data.own.people import Met
from cslr.data.own.reader.lines import Line
from cslr.data.own.reader.raw import Raw
from cslr.data.stream import Row, Rows
from cslr.federation.parties.node_files import SavedAnswer
from cslr.federation.simulation import Population, SimulatedCohort
from cslr.privacy.ledger.records import Unfinished
from cslr.privacy.secure_sum.state import ClientState, Held, SumSession
from cslr.privacy.values import Grid, bound, plain_sum
from cslr.protocol.evaluation import Graded
from cslr.protocol.ports import Examples
from cslr.runs.embedded import EmbeddedRows

TEXT, NUMBER = "Marie Holt coughs", 918273
ONE, Z = np.array([NUMBER]), np.array([[float(NUMBER)]])
BOUNDED = bound(np.array([[NUMBER / 2**20]]), Grid(1.0))
PRIVATE = [
    Rows((TEXT,), ((0,),), ONE),
    Row(TEXT, 0, 0),
    OwnRow(1, TEXT, (0,), 0, TEXT, TEXT, False),
    Raw(1, {"text": TEXT}),
    Arguments([TEXT], [TEXT], [TEXT], [TEXT], {}, [], None, None, "classification", "n", False),
    PeopleOfRows(ONE, ONE, 3),
    Population(Z, ONE, ONE, ONE, 1),
    Examples(Z[None], ONE[None], ONE[None] > 0, (NUMBER,)),
    EmbeddedRows(Z, ONE, Z, ONE, ONE, ONE),
    Graded(ONE > 0, ONE, ONE),
    Unfinished(ONE, Grid(1.0)),
    SumSession(1, "shared", TEXT.encode(), TEXT.encode(), TEXT.encode(), TEXT.encode()),
    ClientState(channel_secret=TEXT.encode()),
    SavedAnswer(TEXT.encode()),
    Held(1, TEXT.encode(), TEXT.encode()),
    Line(1, TEXT),
    OwnData(None, (TEXT,), {TEXT: NUMBER}),
    Met(1, "line", clients={TEXT: {TEXT: 1}}),
    Seen((), {}, "classification", ",", people={TEXT: {TEXT}}),
    SimulatedCohort(Population(Z, ONE, ONE, ONE, 1), NUMBER, ONE > 0),
    BOUNDED,
    plain_sum([BOUNDED]),
]


@pytest.mark.parametrize("value", PRIVATE, ids=lambda value: type(value).__name__)
def test_a_private_value_shows_nothing_that_it_holds(value):
    for shown in (repr(value), str(value), f"{value}"):
        assert TEXT not in shown
        assert str(NUMBER) not in shown


def _shown(tree: ast.AST) -> Iterator[str]:
    """Dataclasses that say they are PRIVATE and would be printed with all they hold."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and (ast.get_docstring(node) or "").startswith("PRIVATE"):
            made = [ast.unparse(each) for each in node.decorator_list]
            if any("dataclass" in each and "repr=False" not in each for each in made):
                yield node.name


def test_every_dataclass_that_is_private_says_so_to_a_debugger():
    sources = Path(cslr.__file__).parent.rglob("*.py")
    shown = [name for path in sources for name in _shown(ast.parse(path.read_text()))]
    assert shown == []
