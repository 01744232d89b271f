"""Short pages: messages, and receipts that people can read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kafka_drain.pages import documents
from kafka_drain.pages.documents import message_page, receipt_page
from tests.kafka_drain.archive.test_status import EVIL, Words
from tests.kafka_drain.golden import P0, sealed_copy


def test_receipt_page(tmp_path: Path) -> None:
    """Partitions and files are tables, and the document is shown with line breaks."""
    generation = sealed_copy(tmp_path / "archive").generation(1)
    name = generation.receipt_names()[-1]
    receipt = generation.read_receipt(name)
    content = (generation.folder / "receipts" / name).read_bytes()

    page = receipt_page(receipt, content, "/back", "/raw")

    rows = Words(page).rows
    [part] = [row for row in rows if row[0] == str(P0)]
    assert part[3] == f"{receipt.partitions[0].records:,}"
    assert {file.path for file in receipt.files} < {row[0] for row in rows}
    assert f"\n  &#34;generation&#34;: {receipt.generation}," in page
    assert 'href="/back"' in page
    assert 'href="/raw"' in page
    assert receipt.sha256 in page


def test_receipt_page_bounded(tmp_path: Path, monkeypatch: object) -> None:
    """A receipt of many partitions and files has a page of bounded size."""
    generation = sealed_copy(tmp_path / "archive").generation(1)
    name = generation.receipt_names()[-1]
    receipt = generation.read_receipt(name)
    content = (generation.folder / "receipts" / name).read_bytes()
    many = replace(receipt, partitions=receipt.partitions * 5_000, files=receipt.files * 5_000)

    page = receipt_page(many, content[:-1] + b" " * documents.SHOWN, "/back", "/raw")

    assert len(page) < 400_000
    assert f"… and {len(many.files) - documents.ROWS:,} more" in page.replace("&#8230;", "…")


def test_short_pages_escape(tmp_path: Path) -> None:
    """Names are text, whatever they contain."""
    generation = sealed_copy(tmp_path / "archive").generation(1)
    receipt = generation.read_receipt(generation.receipt_names()[0])
    files = [replace(file, path=EVIL) for file in receipt.files]
    odd = replace(receipt, pipeline=EVIL, files=tuple(files))

    for page in (receipt_page(odd, b"{}", EVIL, EVIL), message_page(EVIL, EVIL, EVIL)):
        assert page.count("<script>") == 1  # the page's own
        assert 'http-equiv="refresh"' not in page
        assert not Words(page).names & {"img", "onload"}
