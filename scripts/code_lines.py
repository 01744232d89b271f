"""Lines of code: those that aren't blank, a comment, or part of a docstring."""

from __future__ import annotations

import ast
import io
import tokenize

_NOTHING = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """Return the number of lines of code in a Python source."""
    return len(_numbers(source))


def lines_of_code(source: str) -> str:
    """Return a Python source without lines that are no code."""
    lines = source.splitlines()
    return "\n".join(lines[number - 1] for number in sorted(_numbers(source)))


def _numbers(source: str) -> set[int]:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NOTHING:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - _docstring_lines(ast.parse(source))


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Module(body=[ast.Expr(ast.Constant(str())) as text, *_])
                | ast.ClassDef(body=[ast.Expr(ast.Constant(str())) as text, *_])
                | ast.FunctionDef(body=[ast.Expr(ast.Constant(str())) as text, *_])
                | ast.AsyncFunctionDef(body=[ast.Expr(ast.Constant(str())) as text, *_])
            ):
                assert text.end_lineno is not None
                lines.update(range(text.lineno, text.end_lineno + 1))
    return lines
