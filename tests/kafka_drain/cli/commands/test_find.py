"""`kafka-drain find`: what it prints, and that keys stay off the command line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.cli.exit_codes import OK, USAGE
from kafka_drain.cli.main import main
from kafka_drain.data_files.record_lines import RecordLine, read_lines
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.plan import Position
from kafka_drain.find.search import Match, Search
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.made_archive import MadeArchive, dense

A0 = TopicPartition("a", 0)


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """An archive of 30 records, one of which has a large value."""
    made = MadeArchive(tmp_path / "made", {"a": "id"})
    made.seal({A0: dense(0, 20)}, headers=[{"key": "h", "value": b"\x1b"}])
    made.seal({A0: dense(20, 30)}, value=b"<b>" * 1000)
    made.open_generation()
    return str(made.root)


def lines_of(capsys: pytest.CaptureFixture[str]) -> tuple[list[Any], str]:
    """Return the documents that were printed, and what was said besides."""
    printed = capsys.readouterr()
    return [json.loads(line) for line in printed.out.splitlines()], printed.err


def test_find_table(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    """People get a table, in which large values are cut and bytes are digits."""
    assert main(["find", archive, "--topic", "a", "--partition", "0", "--offset", "19-21"]) == OK
    printed = capsys.readouterr()

    assert "│ 19 " in printed.out
    assert "h=hex:1b" in printed.out
    assert "<b>… (3,000 characters)" in printed.out
    assert printed.err.splitlines()[-1] == "find: 2 records found"


def test_find_lines(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get a line for each record, whole; the end says how to go on."""
    assert main(["find", archive, "--json", "--limit", "21"]) == OK
    found, said = lines_of(capsys)

    assert [record["offset"] for record in found] == [*range(21)]
    assert found[20]["value"] == "<b>" * 1000
    assert said.splitlines()[-1].endswith("--after a:1:0:20")

    assert main(["find", archive, "--json", "--after", "a:1:0:20"]) == OK
    found, said = lines_of(capsys)
    assert [record["offset"] for record in found] == [*range(21, 30)]
    assert said.splitlines()[-1] == "find: 9 records found"


def test_find_nothing(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    """If there is no such record, that is the answer."""
    assert main(["find", archive, "--key", "none"]) == OK
    printed = capsys.readouterr()

    assert printed.out == ""
    assert printed.err.splitlines()[-1] == "find: 0 records found"


@pytest.mark.parametrize("more", [[], ["--json"], ["--republish"]])
def test_find_undecoded(
    tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Values that a path couldn't be looked for in are told of, whatever the answer's form."""
    made = MadeArchive(tmp_path / "made", {"a": "id"})
    made.seal({A0: dense(0, 3)}, value=b"\0\0\0\0\x63x")
    made.seal({A0: dense(3, 5)}, value=b'{"id": 1}')
    made.open_generation()
    command = ["find", str(made.root), "--jsonpath", "$.id", *more]
    told = "3 values couldn't be decoded (schema ids 99): they weren't searched"

    assert main(command) == OK
    assert capsys.readouterr().err.splitlines()[-1] == f"find: 2 records found; {told}"
    assert main([*command, "--limit", "1"]) == OK
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"find: 1 record found; {told}; there may be more, after a:1:0:3: --after a:1:0:3"
    )


def test_find_options(archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option is a criterion of the search; without any, there is none."""
    searched: list[Any] = []

    class Noting(Search):
        def matches(self) -> Iterator[Match]:
            searched.append(self)
            self.is_complete = True
            return iter(())

    monkeypatch.setattr("kafka_drain.find.search.Search", Noting)
    path = tmp_path / "keys"
    path.write_text("k3\n")
    assert main(
        [
            *("find", archive, "--topic", "a", "--partition", "0", "--offset", "3-9"),
            *("--from-time", "2026-01-01", "--to-time", "2026-01-02", "--key", "k1", "--key", "k2"),
            *("--key-file", str(path), "--header", "h=1", "--header", "i=2"),
            *("--value-contains", "v", "--jsonpath", "$.id=7", "--after", "a:1:0:4", "--scan"),
            *("--limit", "1"),
        ]
    ) == OK  # fmt: skip
    assert main(["find", archive]) == OK

    whole, plain = searched
    assert whole.criteria == Criteria.of(
        topics=["a"],
        partitions=["0"],
        offset="3-9",
        from_time="2026-01-01",
        to_time="2026-01-02",
        keys=["k1", "k2", "k3"],
        headers=["h=1", "i=2"],
        value_contains="v",
        jsonpath="$.id=7",
    )
    assert (whole.limit, whole.after, whole.scan) == (1, Position("a", 1, 0, 4), True)
    assert (plain.criteria, plain.after, plain.scan) == (Criteria(), None, False)


def test_find_table_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each column has its title; a record without a timestamp has no time."""
    made = MadeArchive(tmp_path / "made", {"a": "id"})
    made.seal(
        {TopicPartition("a", 3): {1234: 1_767_000_000_123, 1235: None}},
        key=b"the key",
        value=b"the value",
        headers=[{"key": "h", "value": b"1"}],
    )
    made.open_generation()

    assert main(["find", str(made.root)]) == OK

    # Without the frame; a narrow terminal may wrap long cells.
    named, *rows = (
        [cell.strip() for cell in line.strip("│┃ ").replace("┃", "│").split("│")]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(("│", "┃"))
    )
    assert named == ["topic", "partition", "offset", "time", "key", "value", "headers"]
    assert [(row[0], row[1], row[2]) for row in rows if row[0]] == [
        ("a", "3", "1,234"),
        ("a", "3", "1,235"),
    ]
    assert rows[0][3].startswith("2025-12-29")
    assert rows[-1][3] == ""


@pytest.mark.parametrize("given", ["file", "-"])
def test_find_key_file(
    archive: str,
    tmp_path: Path,
    given: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Keys can come from a file or standard input, one a line; nothing says which they are."""
    keys = b"17\n\nhex:3238\r\nsecret\xff\n"
    path = tmp_path / "keys"
    path.write_bytes(keys)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(keys)))

    assert (
        main(["find", archive, "--json", "--key-file", str(path) if given == "file" else "-"]) == 0
    )
    found, said = lines_of(capsys)
    assert [record["key"] for record in found] == ["17", "28"]
    # Not the key 17: the archive's path, a rate or a time may contain these digits.
    assert "3238" not in said
    assert "secret" not in said


@pytest.mark.parametrize("inside", ["\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\u2028", "\r"])
def test_find_key_file_one_a_line(
    tmp_path: Path, inside: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key is a whole line: only a line feed ends it, as `erase` reads such files, too."""
    made = MadeArchive(tmp_path / "made", {"a": "id"})
    key = f"17{inside}18"
    made.seal({TopicPartition("a", 0): dense(0, 1)}, key=key.encode())
    made.seal({TopicPartition("a", 0): dense(1, 2)}, key=b"18")
    made.open_generation()
    path = tmp_path / "keys"
    path.write_bytes(f"{key}\n".encode())

    assert main(["find", str(made.root), "--json", "--key-file", str(path)]) == OK
    found, _ = lines_of(capsys)

    assert [record["offset"] for record in found] == [0]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--key", "hex:secret"], "key begins with hex:"),
        (["--key-file", "/no/such/file"], "can't be read: No such file"),
        (["--limit", "0"], "--limit = '0' is not acceptable"),
        (["--after", "x"], "after = 'x' is not acceptable"),
        (["--offset", "3"], "one topic and one partition"),
    ],
)
def test_find_wrong_usage(
    archive: str, arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong arguments are refused before a file is read."""
    assert main(["find", archive, *arguments]) == USAGE
    printed = capsys.readouterr()

    assert why in printed.err
    assert "secret" not in printed.err


def test_find_empty_key_file(
    archive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of keys without one doesn't mean any key."""
    (tmp_path / "keys").write_text("\n\n")

    assert main(["find", archive, "--key-file", str(tmp_path / "keys")]) == USAGE
    assert "has no key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "expected", "is_more"),
    [
        (["--key", "7"], {"offsets": ["a:0:7-8"]}, False),
        (["--value-contains", "<b>", "--limit", "2"], {"offsets": ["a:0:20-22"]}, True),
        (["--topic", "a", "--limit", "2"], {"topics": ["a"]}, False),
    ],
)
def test_find_republish(
    archive: str,
    capsys: pytest.CaptureFixture[str],
    given: list[str],
    expected: dict[str, Any],
    is_more: bool,
) -> None:
    """What was found is handed to a republish as its fields; what they can't say is said."""
    assert main(["find", archive, "--republish", *given]) == OK
    found, said = lines_of(capsys)

    assert found == [expected]
    assert ("no fields select those" in said) is is_more


def test_find_republish_after(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A search that goes on with --after hasn't found all: only its own offsets are selected."""
    key = ["--key", "7", "--key", "8"]
    assert main(["find", archive, "--republish", *key, "--after", "a:1:0:7"]) == OK
    found, said = lines_of(capsys)

    assert found == [{"offsets": ["a:0:8-9"]}]
    assert "no fields select those" in said
    assert "find: 1 record found" in said


def test_find_republish_recreated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If a topic was deleted and created again, it is said that offsets name two records."""
    made = MadeArchive(tmp_path / "made", {"a": "old"})
    made.seal({A0: dense(0, 3)})
    made.open_generation(a="new")
    made.seal({A0: dense(0, 3)})
    made.open_generation()

    assert main(["find", str(made.root), "--republish", "--key", "1"]) == OK

    assert "a was deleted and created again" in capsys.readouterr().err


def test_find_republish_nothing(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    """If nothing was found, nothing is printed: no fields at all would select everything."""
    assert main(["find", archive, "--republish", "--key", "none"]) == OK
    found, _ = lines_of(capsys)

    assert found == []


def test_find_out(archive: str, tmp_path: Path, capsysbinary: Any) -> None:
    """A file gets the records as they are, and the end says how to go on."""
    path = tmp_path / "found.jsonl"
    assert main(["find", archive, "--limit", "21", "--out", str(path)]) == OK
    printed = capsysbinary.readouterr()
    assert printed.out == b""
    assert printed.err.splitlines()[-1].endswith(b"--after a:1:0:20")

    found = [record for _, record in read_lines(path.read_bytes(), "found")]
    assert [record.offset for record in found] == [*range(21)]
    assert found[0] == RecordLine(
        "a", b"0", b"value", 0, 0, 1_767_000_000_000, 0, (("h", b"\x1b"),)
    )
    assert found[20].headers == ()

    assert main(["find", archive, "--limit", "21", "--out", str(path)]) == USAGE
    assert main(["find", archive, "--limit", "21", "--out", "-"]) == OK
    assert capsysbinary.readouterr().out == path.read_bytes()
    assert main(["find", archive, "--republish", "--out", "-"]) == USAGE
