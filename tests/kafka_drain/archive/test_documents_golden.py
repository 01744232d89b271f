"""Documents that releases wrote are read, and written again byte by byte as they were."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from upath import UPath

from kafka_drain.archive.documents import (
    ArchiveDocument,
    Document,
    GenerationDocument,
    HeadDocument,
    IdentityDocument,
    ObservedDocument,
    OverviewDocument,
    ReadFromDocument,
    ReportDocument,
    ToldDocument,
    ToldWindowDocument,
    TopicsDocument,
    WindowPlan,
)
from kafka_drain.archive.journal.entries import parse_entry
from kafka_drain.archive.receipts import parse_receipt
from tests.tables import each_of

DATA = Path(__file__).parents[2] / "data"


def plain(kind: type[Document]) -> Callable[[Path], bytes]:
    """Return how a document that isn't sealed is read and written."""

    def written_again(path: Path) -> bytes:
        document = kind.read(UPath(path)).content()
        return (json.dumps(document, indent=2) + "\n").encode()

    return written_again


#: How a document is read and written, by its path.
KINDS: Mapping[str, Callable[[Path], bytes]] = {
    r"archive\.json": plain(ArchiveDocument),
    r"identity\.json": plain(IdentityDocument),
    r"observed\.json": plain(ObservedDocument),
    r"overview\.json": plain(OverviewDocument),
    r"topics\.json": plain(TopicsDocument),
    r"journal\.json": plain(HeadDocument),
    r"generations/\d+/generation\.json": plain(GenerationDocument),
    r"generations/\d+/read_from\.json": plain(ReadFromDocument),
    r"windows/[^/]+/plan\.json": plain(WindowPlan),
    r"reports/[^/]+\.json": plain(ReportDocument),
    r"told/generations\.json": plain(ToldDocument),
    r"told/windows/[^/]+\.json": plain(ToldWindowDocument),
    r"(generations/\d+/receipts/\d+|windows/[^/]+/receipt)\.json": lambda path: parse_receipt(
        path.read_bytes()
    ).to_bytes(),
    r"journal/\d+\.json": lambda path: parse_entry(path.read_bytes()).to_bytes(),
}
DOCUMENTS = [
    (archive, path.relative_to(DATA / archive).as_posix(), again)
    for archive in ("archive_0_1", "sink_v1_spark4")
    for path in sorted((DATA / archive).rglob("*.json"))
    for pattern, again in KINDS.items()
    if re.fullmatch(rf"(copies/)?{pattern}", path.relative_to(DATA / archive).as_posix())
]


def test_documents_found() -> None:
    """The archives have documents of most kinds, several receipts and entries among them."""
    paths = [path for archive, path, _ in DOCUMENTS if archive == "archive_0_1"]

    assert len(paths) > 20
    assert sum("/receipts/" in path or path.endswith("/receipt.json") for path in paths) > 3
    assert sum(path.startswith("journal/") for path in paths) > 1


@each_of("archive, path, again", DOCUMENTS)
def test_document_written_again(archive: str, path: str, again: Callable[[Path], bytes]) -> None:
    """A document that is read and written again has the bytes that it had."""
    file = DATA / archive / path

    assert again(file) == file.read_bytes()
