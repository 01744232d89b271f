"""A manifest of 1,000,000 lines, read and checked against its receipts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.marks import Mark, Say
from benchmarks.processes import Measured, measured, median_of
from benchmarks.synthetic import SyntheticArchive, write_crc
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation_state import read_state
from kafka_drain.findings import Reason, summary

__all__ = ["measure_manifest"]

RECEIPTS, FILES, NEW_BATCHES, NEW_FILES = 1_000, 1_000, 3, 8
LINES = RECEIPTS * FILES
MOST_SECONDS, MOST_MIB = 15.0, 1024.0
MOST_ROUNDS = 3


def measure_manifest(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Write the archive, read it, remove a line, and read it again.

    Raises:
        RuntimeError: If the complete manifest has findings, or the cut one lacks the expected one.
    """
    began = time.perf_counter()
    say(f"manifest: writing {LINES:,} lines and {RECEIPTS:,} receipts")
    measured(make, str(folder))
    compact = folder / f"generations/0001/data/_spark_metadata/{RECEIPTS - 1}.compact"
    size = compact.stat().st_size
    say(f"manifest: written in {time.perf_counter() - began:.0f} s, {size / 1e6:,.0f} MB")
    expected = {"findings": {}, "sealed": LINES, "new": NEW_BATCHES * NEW_FILES}
    runs = [measured(read, str(folder)) for _ in range(min(rounds, MOST_ROUNDS))]
    for run in runs:
        _require(run, expected, "whole")
    whole = median_of(runs)
    say(f"manifest: read in {whole.seconds:.1f} s, {whole.peak_mib:,.0f} MiB")
    measured(cut_line, str(compact), LINES // 2)
    cut = measured(read, str(folder))
    expected["findings"] = {str(Reason.MANIFEST_TRUNCATED): 1}
    _require(cut, expected | {"sealed": LINES - 1}, "cut")
    say(f"manifest: one line missing, {cut.seconds:.1f} s, {cut.peak_mib:,.0f} MiB, and detected")
    figures = {
        "lines": LINES,
        "receipts": RECEIPTS,
        "bytes": size,
        "rounds": len(runs),
        "whole": whole.to_dict() | {"all_seconds": [round(run.seconds, 3) for run in runs]},
        "cut": cut.to_dict(),
    }
    return figures, [
        Mark(
            f"manifest of {LINES:,} lines checked against {RECEIPTS:,} receipts",
            f"{whole.seconds:.1f} s, {whole.peak_mib:,.0f} MiB",
            wanted=f"at most {MOST_SECONDS:.0f} s and {MOST_MIB:,.0f} MiB",
            met=whole.seconds <= MOST_SECONDS and whole.peak_mib <= MOST_MIB,
            load=whole.load,
        ),
        Mark(
            "the same with one line missing: detected, and identified by reading all receipts",
            f"{cut.seconds:.1f} s, {cut.peak_mib:,.0f} MiB",
            wanted="",
            met=None,
            load=cut.load,
        ),
    ]


def make(folder: str) -> None:
    """Write an archive whose sealed files don't exist."""
    SyntheticArchive(Path(folder), file_size=1_234_567).add_generation(
        1, sealed=RECEIPTS, files=FILES, unsealed=NEW_BATCHES, new_files=NEW_FILES
    )


def read(folder: str) -> dict[str, Any]:
    """Read manifest, checkpoint and receipts, and compare them."""
    snapshot = Archive.at(folder).snapshot()
    generation = snapshot.open_generation
    assert generation is not None
    state = read_state(snapshot, generation)
    return {
        "findings": {str(reason): number for reason, number in summary(state.findings).items()},
        "sealed": len(state.sealed),
        "new": len(state.new),
    }


def cut_line(path: str, number: int) -> None:
    """Remove a line from a manifest file, and update its checksums."""
    compact = Path(path)
    lines = compact.read_bytes().split(b"\n")
    del lines[number]
    compact.write_bytes(b"\n".join(lines))
    write_crc(compact)


def _require(run: Measured, expected: dict[str, Any], name: str) -> None:
    if run.answer != expected:
        raise RuntimeError(f"the {name} manifest reads as {run.answer}, expected {expected}")
