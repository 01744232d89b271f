"""The checks of shell find what is wrong."""

from __future__ import annotations

import pytest

from tests.documentation.blocks import Code
from tests.documentation.shell import check, check_inline, commands_of


def words_of(text: str) -> list[tuple[str, ...]]:
    return [command.words for command in commands_of(Code("page.md", 1, "sh", text))]


def test_commands_of_block() -> None:
    """Comments, pipes, redirections, folders and lines that go on are understood."""
    text = (
        "# a comment\n"
        ".venv/bin/kafka-drain files /a | head -n 1   # another\n"
        "python3 -c 'import sys\nprint(1)' < receipt.json\n"
        "make test \\\n  ONLY=x && make stop\n"
        "docker compose exec --tty airflow airflow dags list\n"
    )

    assert words_of(text) == [
        ("kafka-drain", "files", "/a"),
        ("head", "-n", "1"),
        ("python3", "-c", "import sys\nprint(1)"),
        ("make", "test", "ONLY=x"),
        ("make", "stop"),
        ("docker", "compose", "exec", "--tty", "airflow", "airflow", "dags", "list"),
        ("airflow", "dags", "list"),
    ]


def test_commands_of_open_quote() -> None:
    """A quote without an end is refused."""
    with pytest.raises(ValueError, match="has no end"):
        words_of("echo 'x\n")


@pytest.mark.parametrize(
    "text",
    [
        "kafka-drain validate /a --deap",
        "kafka-drain validat /a",
        "kafka-drain republish",
        "make nothing",
        "make bench NOTHING=1",
        "docker compose exec nobody airflow dags list",
        "docker run x",
        "python3 -c 'import'",
        "export SOMETHING=1",
        "curl x",
    ],
)
def test_check_refuses(text: str) -> None:
    """What doesn't exist, or nobody knows how to check, is refused."""
    (words, *_) = words_of(text)
    with pytest.raises((AssertionError, SyntaxError)):
        check(words)


@pytest.mark.parametrize("text", ["kafka-drain validat", "kafka-drain files --deep", "make x"])
def test_check_inline_refuses(text: str) -> None:
    """A command of a sentence needn't be whole, but it has to exist."""
    with pytest.raises(AssertionError):
        check_inline(text)


@pytest.mark.parametrize(
    "text",
    ["kafka-drain", "kafka-drain COMMAND --help", "kafka-drain validate --scope open", "make …"],
)
def test_check_inline_takes(text: str) -> None:
    """A name, a placeholder and an unfinished command are taken."""
    check_inline(text)
