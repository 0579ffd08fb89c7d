"""Small changes to Python code, such as one makes by mistake: another operator, constant, condition or order of arguments.

They are inside functions, but not in types, defaults, errors that are raised, assertions and f-strings.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "zeros": "ones", "ones": "zeros"}


@dataclass(frozen=True)
class Change:
    file: str
    line: int
    column: int
    before: str  # the code that is replaced
    after: str
    span: tuple[int, int]  # in bytes
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {' '.join(self.before.split())}  →  {' '.join(self.after.split())}"

    @property
    def key(self) -> str:
        """What stays when lines move: a line of tests/equivalent_changes.txt, before the reason."""
        line = (ROOT / self.file).read_text().splitlines()[self.line - 1]
        column = self.column - len(line) + len(line.lstrip())
        return f"{self.file} | {line.strip()} | {column}: {str(self).partition('  ')[2]}"

    @property
    def mutated(self) -> bytes:
        content = (ROOT / self.file).read_bytes()
        after = self.after + "\n" * self.before.count("\n")  # later lines keep their numbers
        if self.after not in ("pass", "break", "continue"):
            after = f"({after})"
        return content[: self.span[0]] + after.encode() + content[self.span[1] :]


def changes(file: str, tests: Mapping[int, Sequence[str]]) -> Iterator[Change]:
    """Every change of a file on a line that tests run, in the file's order."""
    source = (ROOT / file).read_bytes()
    starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]
    for node, statement in in_functions(ast.parse(source), None):
        found = tests.get(node.lineno) or tests.get(statement.lineno)
        for spot, after in replacements(node) if found else ():
            if after == ast.unparse(spot):  # two equal parts were swapped
                continue
            span = starts[spot.lineno - 1] + spot.col_offset, starts[spot.end_lineno - 1] + spot.end_col_offset
            change = Change(
                file, spot.lineno, spot.col_offset, source[slice(*span)].decode(), after, span, tuple(found or ())
            )
            with suppress(SyntaxError):
                compile(change.mutated, file, "exec")
                yield change


def in_functions(node: ast.AST, statement: ast.stmt | None) -> Iterator[tuple[Any, ast.stmt]]:
    """The nodes inside functions, with their statements; without types, defaults, messages of errors and f-strings."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.arguments):
        return
    if statement and isinstance(node, ast.expr | ast.stmt):
        statement = node if isinstance(node, ast.stmt) else statement
        yield node, statement
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list", "msg"):
            enters = isinstance(node, ast.FunctionDef) and name == "body"
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from in_functions(child, node if enters and not statement else statement)  # type: ignore[arg-type]


def replacements(node: ast.AST) -> Iterator[tuple[Any, str]]:
    """The expressions or statements that a change replaces, and the new code."""
    match node:
        case ast.Compare(left, [operator], [right]):
            yield node, ast.unparse(ast.Compare(left, [COMPARISONS[type(operator)]()], [right]))
        case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
            yield node, ast.unparse(ast.BinOp(left, OPERATORS[type(operator)](), right))
        case ast.BoolOp(operator, values):
            yield node, ast.unparse(ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values))
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield node, ast.unparse(operand)
        case ast.If(test) | ast.While(test) if isinstance(test, ast.Name | ast.Attribute | ast.Call):
            yield test, f"not {ast.unparse(test)}"
        case ast.IfExp(test, body, orelse):
            yield node, ast.unparse(ast.IfExp(test, orelse, body))
        case ast.Constant(bool(value)):
            yield node, str(not value)
        case ast.Constant(int(value)):
            yield node, str(value + 1)
        case ast.Constant(float(value)):
            yield node, str(value * 2 + 0.1)
        case ast.Call(ast.Name(name), arguments, keywords) if name in FUNCTIONS:
            yield node, ast.unparse(ast.Call(ast.Name(FUNCTIONS[name]), arguments, keywords))
        case ast.Call(function, [first, second, *rest], keywords) if not isinstance(first, ast.Starred):
            yield node, ast.unparse(ast.Call(function, [second, first, *rest], keywords))
        case ast.Tuple([first, second], ast.Load()):
            yield node, ast.unparse(ast.Tuple([second, first], ast.Load()))
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield node, "pass"
        case ast.Continue() | ast.Break():
            yield node, "break" if isinstance(node, ast.Continue) else "continue"
