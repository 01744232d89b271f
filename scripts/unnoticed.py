"""Changes that no test notices: make one at a time in a module, and run its tests.

    python -m scripts.unnoticed kafka_drain.archive.copies [test file or folder …]

Prints each change of the module that the tests don't notice; without tests, those of its name.
`scripts.mutation` keeps the score of what decides; this looks at any module, also at what
orchestrates. Each change is made in a forked process, to functions that are already imported, which
takes little more than the tests. What runs at import, such as a default, isn't changed.

Prose, errors and progress messages aren't changed, because they decide nothing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

#: A change whose tests take longer than this many seconds is noticed: it hangs.
SECONDS = 90

_OTHER_OPERATORS: dict[type[ast.cmpop], type[ast.cmpop]] = {
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
_OTHER_FUNCTIONS = {"any": "all", "all": "any", "min": "max", "max": "min", "sorted": "list"}
_OTHER_ATTRIBUTES = {"start": "end", "end": "start", "first": "last", "last": "first"}
_PROSE = {"say", "print", "info", "warning", "debug", "Ticker", "Progress", "advance"}


@dataclass(frozen=True)
class Change:
    """A change to a function.

    Attributes:
        line: The line in its file.
        text: What was changed, such as `drop a of a and b`.
        tree: The module's syntax tree with the change.
    """

    line: int
    text: str
    tree: ast.Module


def changes_of(tree: ast.Module) -> Iterator[Change]:
    """Yield every change to the functions of a module, one at a time."""
    nodes = [*ast.walk(tree)]
    numbers = {id(node): number for number, node in enumerate(nodes)}
    for function in _functions(tree):
        for node in _changeable(function):
            for text, new in alternatives(node):
                changed = copy.deepcopy(tree)
                # The copy is walked in the same order.
                old = [*ast.walk(changed)][numbers[id(node)]]
                new = ast.copy_location(copy.deepcopy(new), old)
                _Replacement(old, new).visit(changed)
                line = getattr(node, "lineno", function.lineno)
                yield Change(line, text, ast.fix_missing_locations(changed))


def alternatives(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what may stand in place of a node by mistake, each with a description."""
    for kind in (_conditions, _values, _calls, _parts, _steps):
        yield from kind(node)


def _conditions(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.BoolOp):
        for each, rest in _without_one(node.values):
            other = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            yield f"drop {_text(each)} of {_text(node)}", other
    elif isinstance(node, ast.If):
        for value in (False, True):
            other = ast.If(ast.Constant(value), node.body, node.orelse)
            yield f"if {_text(node.test)}: {'always' if value else 'never'}", other
    elif isinstance(node, ast.IfExp):
        yield f"always the first of {_text(node)}", node.body
        yield f"always the second of {_text(node)}", node.orelse
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"drop not of {_text(node)}", node.operand
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = ast.Compare(node.left, [_OTHER_OPERATORS[type(node.ops[0])]()], node.comparators)
        yield f"{_text(node)} as {_text(other)}", other


def _values(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, (ast.BitOr, ast.BitAnd, ast.Sub)):
            yield f"{_text(node)} as {_text(node.left)}", node.left
        if isinstance(node.op, (ast.BitOr, ast.BitAnd)):
            yield f"{_text(node)} as {_text(node.right)}", node.right
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield f"{node.value} as {value}", ast.Constant(value)
    elif isinstance(node, ast.Attribute) and node.attr in _OTHER_ATTRIBUTES and _is_read(node):
        other = ast.Attribute(node.value, _OTHER_ATTRIBUTES[node.attr], node.ctx)
        yield f"{_text(node)} as {_text(other)}", other


def _calls(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if not isinstance(node, ast.Call):
        return
    for each, rest in _without_one(node.keywords):
        yield f"drop {each.arg} of {_text(node)}", ast.Call(node.func, node.args, rest)
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if found := _OTHER_FUNCTIONS.get(name):
        other = ast.Call(ast.Name(found, ast.Load()), node.args, node.keywords)
        yield f"{found} in {_text(node)}", other
    if len(node.args) > 1 and all(isinstance(each, ast.Name) for each in node.args[:2]):
        first, second, *rest = node.args
        other = ast.Call(node.func, [second, first, *rest], node.keywords)
        yield f"{_text(node)} as {_text(other)}", other


def _parts(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield collections, comprehensions and handlers without one of their parts."""
    if isinstance(node, ast.comprehension):
        for each, rest in _without_one(node.ifs):
            other: ast.AST = ast.comprehension(node.target, node.iter, rest, node.is_async)
            yield f"drop if {_text(each)}", other
    elif isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Tuple):
        for each, rest in _without_one(node.type.elts):
            kinds = ast.Tuple(rest, ast.Load())
            yield f"drop except {_text(each)}", ast.ExceptHandler(kinds, node.name, node.body)
    elif isinstance(node, ast.Dict) and len(node.keys) > 1:
        for (key, value), rest in _without_one([*zip(node.keys, node.values, strict=True)]):
            keys, values = map(list, zip(*rest, strict=True))
            yield f"drop {_text(key or value)} of {_text(node)}", ast.Dict(keys, values)
    elif isinstance(node, (ast.Set, ast.List, ast.Tuple)) and len(node.elts) > 2 and _is_read(node):
        for each, rest in _without_one(node.elts):
            other = copy.copy(node)
            other.elts = rest
            yield f"drop {_text(each)} of {_text(node)}", other


def _steps(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield nothing in place of a step, the end of a loop, and steps in the other order."""
    is_stored = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name)
    if _is_step(node) or isinstance(node, ast.AugAssign) or is_stored:
        yield f"drop {_text(node)}", ast.Pass()
    elif isinstance(node, ast.Continue):
        yield "continue as break", ast.Break()
    for name in ("body", "orelse", "finalbody"):
        found = getattr(node, name, None)
        # A lambda's body is no list.
        steps: list[ast.AST] = found if isinstance(found, list) else []
        for at in range(len(steps) - 1):
            if _is_step(steps[at]) and _is_step(steps[at + 1]):
                other = copy.copy(node)
                setattr(other, name, [*steps[:at], steps[at + 1], steps[at], *steps[at + 2 :]])
                yield f"{_text(steps[at + 1])} before {_text(steps[at])}", other


def _is_step(node: ast.AST) -> bool:
    if not isinstance(node, ast.Expr) or _is_prose(node.value):
        return False
    return isinstance(node.value, (ast.Call, ast.YieldFrom))


def _is_read(node: ast.AST) -> bool:
    """Return whether a node isn't what is assigned to or deleted."""
    return isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


def _is_prose(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", getattr(node.func, "id", "")) in _PROSE
    return isinstance(node, (ast.JoinedStr, ast.Raise))


def _without_one(parts: Sequence[Any]) -> Iterator[tuple[Any, list[Any]]]:
    for at, part in enumerate(parts):
        yield part, [*parts[:at], *parts[at + 1 :]]


def _functions(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef):
            yield each
        elif isinstance(each, ast.ClassDef):
            yield from _functions(each)


def _changeable(function: ast.FunctionDef) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [function]
    while waiting:
        node = waiting.pop()
        # Defaults are made at import.
        if _is_prose(node) or isinstance(node, ast.arguments):
            continue
        yield node
        for name, value in reversed([*ast.iter_fields(node)]):
            if name not in ("annotation", "returns", "decorator_list"):
                parts = value if isinstance(value, list) else [value]
                waiting += [part for part in reversed(parts) if isinstance(part, ast.AST)]


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return f"`{text if len(text) < 70 else text[:69] + '…'}`"


class _Replacement(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else self.generic_visit(node)


def apply(change: Change, file: str) -> int:
    """Give the imported functions of a file the code of a change; return how many have another."""
    codes = {
        (code.co_name, code.co_firstlineno): code
        for code in _codes(compile(change.tree, file, "exec"))
    }
    number = 0
    for found in gc.get_objects():
        if isinstance(found, FunctionType) and found.__code__.co_filename == file:
            own = found.__code__
            new = codes.get((own.co_name, own.co_firstlineno))
            # Else it would close over something else.
            if new is not None and new != own and new.co_freevars == own.co_freevars:
                found.__code__ = new
                number += 1
    return number


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


class Survey:
    """Runs the collected tests once for each change, each time in a forked process.

    Args:
        module: The module to change.

    Attributes:
        unnoticed: What the tests don't notice, and where.
        number: How many changes were made.
    """

    def __init__(self, module: ModuleType) -> None:
        self._file = str(module.__file__)
        self.unnoticed: list[str] = []
        self.number = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests: first as the module is.

        Raises:
            UsageError: When the tests fail without a change.
        """
        if not session.items or self._is_noticed(session, None):
            raise pytest.UsageError("without a change, there is no test, or one fails")
        for change in changes_of(ast.parse(Path(self._file).read_text(encoding="utf-8"))):
            self.number += 1
            if not self._is_noticed(session, change):
                self.unnoticed.append(f"{self._file}:{change.line}: {change.text}")
                print(self.unnoticed[-1], flush=True)
        return True

    def _is_noticed(self, session: pytest.Session, change: Change | None) -> bool:
        child = os.fork()
        if child == 0:
            os._exit(self._run(session, change))
        _, status = os.waitpid(child, 0)
        return status != 0

    def _run(self, session: pytest.Session, change: Change | None) -> int:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        signal.alarm(SECONDS)
        plugins = session.config.pluginmanager
        plugins.unregister(plugins.getplugin("terminalreporter"))
        try:
            if change is not None:
                apply(change, self._file)
            for item, following in zip(session.items, [*session.items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    return 1
        except BaseException:
            return 1
        return 0


def files_of(module: str) -> list[str]:
    """Return the test files of a module's name, relative to the project."""
    package, _, name = module.rpartition(".")
    folder = ROOT.joinpath("tests", *package.split("."))
    found = [*folder.glob(f"test_{name}.py"), *folder.glob(f"test_{name}_*.py")]
    return [str(path.relative_to(ROOT)) for path in found]


def main(arguments: Sequence[str]) -> int:
    """Survey a module; return the exit code: 1 if something isn't noticed."""
    parser = argparse.ArgumentParser(prog="scripts.unnoticed")
    parser.add_argument("module", help="such as kafka_drain.archive.copies")
    parser.add_argument("tests", nargs="*", help="files or folders (those of the module's name)")
    asked, more = parser.parse_known_args(arguments)
    tests = asked.tests or files_of(asked.module)
    if not tests:
        parser.error(f"no test file has the name of {asked.module}; name those that test it")
    survey = Survey(importlib.import_module(asked.module))
    quiet = ["-q", "-p", "no:cacheprovider", "-m", "not integration", "--durations=0"]
    code = pytest.main([*quiet, *more, *tests], plugins=[survey])
    if not survey.number:
        return int(code) or 2
    print(f"{len(survey.unnoticed)} of {survey.number} changes are noticed by no test")
    return 1 if survey.unnoticed else 0


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / name) for name in ("plugins", "spark_jobs")]
    sys.exit(main(sys.argv[1:]))
