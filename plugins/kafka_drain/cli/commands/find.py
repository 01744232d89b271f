"""`kafka-drain find`: find records in an archive."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rich.console import Console
from rich.text import Text

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import add_archive
from kafka_drain.cli.console import answer, answer_line, new_table, print_table, say
from kafka_drain.cli.exit_codes import OK
from kafka_drain.cli.new_file import new_file
from kafka_drain.config.checks import integer
from kafka_drain.config.key_lines import lines_of
from kafka_drain.errors import ConfigError
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.plan import Position
from kafka_drain.intervals import time_text

if TYPE_CHECKING:
    from kafka_drain.find.search import Match, Search

#: Number of characters of a key, a value or headers that the table shows.
_SHOWN = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    parser.add_argument("--topic", metavar="TOPIC", action="append", default=[], dest="topics",
                        help="only records of this topic; can be repeated")  # fmt: skip
    parser.add_argument("--partition", metavar="NUMBER", action="append", default=[],
                        dest="partitions",
                        help="only records of this partition; can be repeated")  # fmt: skip
    parser.add_argument(
        "--offset",
        metavar="OFFSET|START-END",
        help="only this offset, or these, without the end; needs --topic and --partition",
    )
    parser.add_argument(
        "--from-time", metavar="TIME", help="only records with this timestamp or a later one"
    )
    parser.add_argument(
        "--to-time", metavar="TIME", help="only records with a timestamp before this one"
    )
    parser.add_argument(
        "--key",
        metavar="KEY",
        action="append",
        default=[],
        dest="keys",
        help="only records with this key, as text or as hex:00ff; can be repeated. Other users of "
        "this machine can see it: use --key-file for keys that they must not see",
    )
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help="only records with a key of this file, one a line, written like --key; - for standard "
        "input",
    )
    parser.add_argument(
        "--header",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        dest="headers",
        help="only records with this header, its value as text or as hex:00ff; can be repeated",
    )
    parser.add_argument(
        "--value-contains",
        metavar="BYTES",
        help="only records whose value contains this, as text or as hex:00ff",
    )
    parser.add_argument(
        "--jsonpath",
        metavar="PATH[=VALUE]",
        help="only records whose decoded value has this path, such as $.order.items[0].id=42",
    )
    parser.add_argument(
        "--limit", metavar="N", default="100", help="number of records to show (%(default)s)"
    )
    parser.add_argument(
        "--after", metavar="POSITION", help="continue where an earlier search ended"
    )
    parser.add_argument(
        "--scan",
        action="store_true",
        help="read all files that may hold a match; otherwise the search refuses if these have "
        "more than 256 MiB",
    )
    parser.add_argument(
        "--republish",
        action="store_true",
        help="instead of the records, print the JSON configuration with which republish_<name> "
        "selects them, and say what it can't express",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=os.path.expanduser,
        help="write the records as they are to this new file, which `republish --from-file` sends; "
        "- for standard output",
    )


def run(options: argparse.Namespace) -> int:
    """Find records, and show them."""
    if options.out is not None and options.republish:
        raise ConfigError("--out writes the records, --republish what selects them; omit one")
    criteria = Criteria.of(
        topics=options.topics,
        partitions=options.partitions,
        offset=options.offset,
        from_time=options.from_time,
        to_time=options.to_time,
        keys=[*options.keys, *_keys_in(options.key_file)],
        headers=options.headers,
        value_contains=options.value_contains,
        jsonpath=options.jsonpath,
    )
    # Not at the top: pyarrow takes longer to import than wrong arguments take to be refused.
    from kafka_drain.find.search import Search

    archive = Archive.at(options.archive)
    archive.require()
    search = Search(
        archive,
        criteria,
        limit=int(integer(1)("--limit", options.limit)),
        after=None if options.after is None else Position.parse(options.after),
        scan=options.scan,
    )
    if options.out is not None:
        found = _write_lines(options.out, search)
    elif options.republish:
        found = _print_fields(search)
    else:
        found = _print_lines(search) if options.json else _print_table(options, search)
    say(_ending(search, found))
    return OK


def _keys_in(path: str | None) -> list[str]:
    """Return the keys of a file; empty lines are none."""
    if path is None:
        return []
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"--key-file {path} can't be read: {error.strerror}") from error
    keys = lines_of(content.decode("utf-8", "surrogateescape"), f"--key-file {path}")
    if not keys:
        raise ConfigError(f"--key-file {path} has no key; without one, any record would match")
    return [key for key, _ in keys]


def _print_fields(search: Search) -> int:
    """Print the fields that select the records in a republish; nothing if there are none.

    Prints what selects all that match, if fields can, and otherwise those that were found.
    """
    from kafka_drain.find.as_republish import as_republish

    matches = list(search.matches())
    if not matches:
        return 0
    is_all = search.is_complete and search.after is None
    selected = as_republish(search.criteria, matches, is_all=is_all, recreated=search.recreated)
    answer_line(selected.these if selected.all is None else selected.all)
    for sentence in selected.cannot:
        say(f"find: {sentence}")
    return len(matches)


def _write_lines(path: str, search: Search) -> int:
    """Write the records to a new file, or to standard output."""
    if path == "-":
        return _write(sys.stdout.buffer, search)
    with new_file(Path(path)) as file:
        return _write(file, search)


def _write(file: BinaryIO, search: Search) -> int:
    found = 0
    for match in search.matches():
        file.write(f"{match.record().line()}\n".encode())
        found += 1
    file.flush()
    return found


def _print_lines(search: Search) -> int:
    found, payloads = 0, search.payloads()
    for match in search.matches():
        answer_line(match.to_dict(payloads))
        found += 1
    return found


def _print_table(options: argparse.Namespace, search: Search) -> int:
    matches = list(search.matches())
    if matches:
        answer(options, None, lambda console: _show(console, search, matches))
    return len(matches)


def _show(console: Console, search: Search, matches: Sequence[Match]) -> None:
    payloads = search.payloads()
    table = new_table(
        console,
        *("topic", "partition", "offset", "time", "key", "value", "headers"),
        numbers=("partition", "offset"),
    )
    for match in matches:
        at = match.position
        table.add_row(
            Text(at.topic),
            str(at.partition),
            f"{at.offset:,}",
            "" if match.timestamp is None else time_text(match.timestamp),
            _short([payloads.of("key", match.key, match.headers).line()]),
            _short([payloads.of("value", match.value, match.headers).line()]),
            _short(f"{name}={value.line()}" for name, value in match.shown_headers()),
        )
    print_table(console, table)


def _short(texts: Iterable[str]) -> Text:
    text = ", ".join(texts)
    if len(text) <= _SHOWN:
        return Text(text)
    return Text(f"{text[:_SHOWN]}… ({len(text):,} characters)")


def _ending(search: Search, found: int) -> str:
    """Return the line that ends a search: what was found, what wasn't searched, how to go on."""
    parts = [f"find: {found:,} record{'' if found == 1 else 's'} found", search.not_searched()]
    if not search.is_complete:
        parts.append(f"there may be more, after {search.through}: --after {search.through}")
    return "; ".join(filter(None, parts))
