"""The code in the documents: every fenced block, and what stands between backticks in a text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
#: In the order in which one reads them.
DOCUMENTS = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)

#: Pages whose every block of Python and SQL is run by tests of their own.
RUN_ELSEWHERE = {"docs/reading.md": "tests/test_reading_page.py"}


@dataclass(frozen=True)
class Code:
    """A block or an inline piece of code.

    Attributes:
        page: The document, from the repository's root.
        line: Where it begins.
        language: What the fence says; empty for none, and for inline code.
        text: What it holds.
    """

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"


@lru_cache
def _tokens(path: Path) -> tuple[Token, ...]:
    return tuple(MarkdownIt("commonmark").enable("table").parse(path.read_text()))


def blocks() -> list[Code]:
    """List the blocks of code of all documents; an indented one has the language `indented`."""
    return [
        Code(
            str(path.relative_to(ROOT)),
            (token.map or [0])[0] + 1,
            token.info.strip().partition(" ")[0] if token.type == "fence" else "indented",
            token.content,
        )
        for path in DOCUMENTS
        for token in _tokens(path)
        if token.type in ("fence", "code_block")
    ]


def inline_code() -> list[Code]:
    """List what stands between backticks in all documents."""
    return [
        Code(str(path.relative_to(ROOT)), (token.map or [0])[0] + 1, "", child.content)
        for path in DOCUMENTS
        for token in _tokens(path)
        for child in token.children or ()
        if child.type == "code_inline"
    ]


def imports(block: Code) -> set[str]:
    """Return the modules that a block of Python imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def python_blocks(*packages: str) -> Iterator[Code]:
    """Yield the blocks of Python that import something of one of the packages.

    Those of pages that have tests of their own are left out.
    """
    for block in blocks():
        if block.language != "python" or block.page in RUN_ELSEWHERE:
            continue
        if {name.partition(".")[0] for name in imports(block)} & {*packages}:
            yield block
