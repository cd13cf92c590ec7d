"""All mutants of a source file: every expression in which a small fault can be placed."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
SYMMETRIC = {"min", "max", "minimum", "maximum", "allclose", "array_equal", "samestat"}
# Keywords that change how something fails or looks, never what is computed.
COSMETIC = {
    *("strict", "eq", "repr", "frozen", "slots", "copy", "stacklevel", "check", "kw_only"),
    *("indent", "init"),
}


@dataclass(frozen=True)
class Mutant:
    """One replaced piece of source."""

    module: str
    """The file relative to ``src/cslr``."""
    line: int
    start: int
    end: int
    before: str
    after: str
    lines: tuple[str, str]
    """The line of source in which it begins, without and with the fault."""

    def __str__(self) -> str:
        def short(text: str) -> str:
            flat = " ".join(text.split())
            return flat if len(flat) <= 70 else flat[:67] + "..."

        return f"{self.module}:{self.line}  {short(self.before)}  ->  {short(self.after)}"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]

    @property
    def key(self) -> tuple[str, str, str]:
        """Module, and the line without and with the fault; independent of the line's number."""
        return self.module, *self.lines

    @property
    def room(self) -> str:
        return Path(self.module).parts[0]


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """The node with one fault, for every fault that is possible."""
    twin = copy.deepcopy(node)
    match twin:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            twin.ops = [COMPARISONS[type(operator)]()]
        case ast.BinOp(op=operator) if type(operator) in ARITHMETIC:
            twin.op = ARITHMETIC[type(operator)]()
        case ast.BoolOp(op=operator):
            twin.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            twin = twin.operand
        case ast.IfExp():
            twin.body, twin.orelse = twin.orelse, twin.body
        case ast.Constant(value=bool(value)):
            twin.value = not value
        case ast.Constant(value=int(value) | float(value)):
            twin.value = value + 1
        case ast.Call(func, [first, second, *_]) if not _any_order(func, first, second):
            twin.args[:2] = second, first
        case _:
            return
    if ast.unparse(twin) != ast.unparse(node):
        yield twin


def _any_order(function: ast.expr, *arguments: ast.expr) -> bool:
    """Whether swapping these arguments is impossible or has no effect."""
    name = ast.unparse(function).split(".")[-1]
    return name in SYMMETRIC or any(isinstance(each, ast.Starred) for each in arguments)


def computed(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below that computes something: no types, messages, decorators or names."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_idle(child):
                continue
            yield child
            yield from computed(child)


def _is_idle(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert():
            return True
        case ast.keyword(arg=str(name)):
            return name in COSMETIC
        case ast.FunctionDef(name="__repr__" | "__str__"):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
    return False


def mutants_of(module: str, source: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines."""
    text = source.encode()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def mutant(node: ast.expr, twin: ast.AST) -> Mutant:
        number, last = node.lineno, node.end_lineno or node.lineno
        start, end = starts[number - 1] + node.col_offset, starts[last - 1]
        end += node.end_col_offset or 0
        before, after = text[start:end].decode(), f"({ast.unparse(twin)})"
        line = text[starts[number - 1] : starts[number]].decode()
        left, right = text[starts[number - 1] : start].decode(), text[end : starts[last]].decode()
        lines = line.strip(), f"{left}{after}{right}".strip()
        return Mutant(module, number, start, end, before, after, lines)

    found = [
        mutant(node, twin)
        for node in computed(ast.parse(source))
        if isinstance(node, ast.expr)
        for twin in variants(node)
    ]
    return sorted(found, key=lambda each: (each.start, each.end))
