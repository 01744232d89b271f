"""The cost of validating one small new batch in an archive that has grown large."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks.marks import Mark, Say
from benchmarks.processes import Measured, measured, median_of
from benchmarks.synthetic import Linker, SyntheticArchive, SyntheticCluster, unseal_newest
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.soundness import check_sealed_state
from kafka_drain.proof.validation import Scope, validate_archive

__all__ = ["measure_growth"]

FILES = 8  # per batch
#: Sealed files of each generation. A generation is closed at 50,000 lines in its manifest: an
#: archive of 100,000 files is slowest just before that, and fastest just after.
SMALL, FULL = "1,000", "100,000, the open generation full"
ROLLED = "100,000, a generation just opened"
HUGE = "1,000,000, the open generation full"
ARCHIVES: dict[str, tuple[int, ...]] = {
    SMALL: (1_000,),
    "10,000": (10_000,),
    FULL: (50_000,) * 2,
    HUGE: (50_000,) * 20,
}
SCOPES: tuple[Scope, ...] = ("open", "all")


def measure_growth(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Validate the same new batch in archives of each size.

    Raises:
        RuntimeError: If a validation doesn't find everything complete, or seals nothing.
    """
    figures: dict[str, Any] = {"files_of_a_batch": FILES, "rounds": rounds, "archives": {}}
    marks: list[Mark] = []

    def measure(name: str, root: Path, generations: tuple[int, ...]) -> None:
        found: dict[str, Any] = {}
        # Reading all receipts of the largest archive takes minutes each time.
        scopes = SCOPES[:1] if name == HUGE else SCOPES
        for scope in scopes:
            runs = [_validate(root, generations, scope) for _ in range(rounds)]
            median = median_of(runs)
            found[scope] = median.to_dict()
            found[scope]["all_seconds"] = [round(run.seconds, 3) for run in runs]
            marks.append(_mark(name, scope, median))
        told = ", ".join(f"{scope} {found[scope]['seconds']:.2f} s" for scope in scopes)
        say(f"growth: {name}: {told}")
        figures["archives"][name] = {"generations": list(generations), **found}

    for number, (name, generations) in enumerate(ARCHIVES.items()):
        root = folder / str(number)
        began = time.perf_counter()
        measured(make, str(root), generations)
        say(f"growth: {name}: created in {time.perf_counter() - began:.0f} s")
        measure(name, root, generations)
        if name == FULL:
            measured(roll, str(root))
            *closed, full = generations
            measure(ROLLED, root, (*closed, full + FILES, 0))
        shutil.rmtree(root)
    marks.append(_by_age(figures["archives"], marks[-1].load))
    return figures, marks


def _by_age(archives: dict[str, Any], load: float) -> Mark:
    """Return how much each sealed file adds to the validation of a new batch."""
    small, full, rolled = (archives[name]["open"]["seconds"] for name in (SMALL, FULL, ROLLED))
    still_open = (full - small) / ARCHIVES[FULL][-1] * 1e6
    closed = (rolled - small) / sum(ARCHIVES[FULL]) * 1e6
    return Mark(
        "scope open, per sealed file",
        f"{still_open:.1f} µs while its generation is open, {closed:.1f} µs once it is closed",
        wanted="",
        met=None,
        load=load,
    )


def _mark(name: str, scope: Scope, median: Measured) -> Mark:
    return Mark(
        f"new batch of {FILES} files, scope {scope}, sealed files: {name}",
        f"{median.seconds:.2f} s, {median.peak_mib:,.0f} MiB",
        wanted="",
        met=None,
        load=median.load,
    )


def make(folder: str, generations: tuple[int, ...]) -> None:
    """Write an archive whose last generation has one unsealed batch."""
    root = Path(folder)
    root.mkdir(parents=True)
    link = Linker(root / "template.parquet")
    archive = SyntheticArchive(root, link.size, link)
    for number, files in enumerate(generations, start=1):
        last = number == len(generations)
        archive.add_generation(number, sealed=files // FILES, files=FILES, unsealed=int(last))
    made = Archive.at(folder)
    note_sealed(made.root, check_sealed_state(made.snapshot()).there)


def roll(folder: str) -> None:
    """Seal the new batch, and open a new generation with one batch."""
    validate(folder, "open")
    last = Archive.at(folder).snapshot().generations[-1]
    receipt = last.last_receipt()
    assert receipt is not None
    archive = SyntheticArchive(Path(folder), receipt.files[0].bytes)
    archive.continue_after(receipt)
    archive.add_generation(last.number + 1, sealed=0, files=FILES, unsealed=1)


def _validate(root: Path, generations: tuple[int, ...], scope: Scope) -> Measured:
    run = measured(validate, str(root), scope)
    files = sum(generations) + FILES
    if run.answer != {"complete": True, "files": files, "written": 1}:
        raise RuntimeError(f"{root} was validated as {run.answer}, expected {files} files")
    unseal_newest(root, len(generations))
    return run


def validate(folder: str, scope: Scope) -> dict[str, Any]:
    """Validate and seal, with a simulated Kafka that responds at no cost."""
    report = validate_archive(Archive.at(folder), SyntheticCluster(), scope=scope)
    return {
        "complete": report.complete,
        "files": report.files,
        "written": report.receipts_written,
    }
