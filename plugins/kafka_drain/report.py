"""The report of a validation, written into the archive."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from kafka_drain.archive import Archive
from kafka_drain.documents import write_document
from kafka_drain.validation import Report

__all__ = ["write_report"]


def write_report(archive: Archive, report: Report, run: str | None = None) -> str:
    """Write `reports/<run>.json` and return its path.

    Args:
        archive: Where to.
        report: What to write.
        run: Name of the run; the time when it is None.

    Raises:
        ArchiveError: When the folder can't be written.
    """
    name = run or f"validate_{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"
    # Airflow's run ids hold colons and plus signs.
    path = archive.root / "reports" / (re.sub(r"[^A-Za-z0-9_.-]", "_", name) + ".json")
    write_document(path, report.to_dict())
    return str(path)
