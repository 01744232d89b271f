"""Render short pages: a message in place of a page, and a receipt that people can read.

Opens nothing but its templates.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from kafka_drain.archive.receipts import Receipt
from kafka_drain.pages.rendering import render

#: Maximum number of rows of each table; the receipt itself has all of them.
ROWS = 200
#: Maximum number of characters of the receipt that are shown as JSON.
SHOWN = 100_000
#: In Airflow's frame, these pages have its colours; they aren't refreshed.
_FRAMED: dict[str, Any] = {"script_file": "frame.js", "refresh": 0}


def message_page(title: str, text: str, back: str) -> str:
    """Return a page that says why there is no other one.

    Args:
        title: The event, in a few words.
        text: The reason.
        back: Address of the list of archives.
    """
    return render(
        "message.html", title=title, verdict="kafka-drain", text=text, back=back, **_FRAMED
    )


def receipt_page(receipt: Receipt, content: bytes, back: str, raw: str) -> str:
    """Return a receipt as a page.

    Args:
        back: Address of its archive's page.
        raw: Address of the receipt as it was sealed.
    """
    text = json.dumps(json.loads(content), indent=2, ensure_ascii=False)
    gaps: Counter[str] = Counter()
    for part in receipt.partitions:
        gaps.update({str(reason): sum(map(len, found)) for reason, found in part.gaps.items()})
    return render(
        "receipt.html",
        title=f"Receipt {receipt.name}",
        verdict=f"generation {receipt.generation}",
        it=receipt,
        bytes=sum(file.bytes for file in receipt.files),
        gaps=dict(gaps),
        rows=ROWS,
        text=text[:SHOWN],
        is_cut=len(text) > SHOWN,
        back=back,
        raw=raw,
        **_FRAMED,
    )
