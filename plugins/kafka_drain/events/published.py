"""Track which segments an archive's asset events have published: each at least once.

The notes are in the archive's folder `told`: `generations.json` says which receipts of generations
were published, `windows/<key>.json` that a window was. A run that is retried or cleared publishes
the same segments again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import ToldDocument, ToldWindowDocument
from kafka_drain.archive.receipts import Receipt
from kafka_drain.proof.sealed_files import readable_receipts


@dataclass(frozen=True)
class Publication:
    """What a run is to publish about an archive's generations.

    Attributes:
        run: The run's id; None for a run that isn't repeated.
        before: The newest receipt published before the run, by the generation's number.
    """

    archive: Archive
    run: str | None
    before: dict[str, str]

    def receipts(self, sealed: Sequence[Receipt] = ()) -> Iterator[Receipt]:
        """Yield the receipts to publish, oldest first.

        Damaged receipts are skipped: validation reports them as findings. Generations before the
        newest published one are closed: of these, only what this run has sealed is published.

        Args:
            sealed: The receipts that this run has sealed.
        """
        newest = max(map(int, self.before), default=0)
        for generation in self.archive.snapshot().generations:
            told = self.before.get(str(generation.number), "")
            if generation.number < newest:
                own = (found for found in sealed if found.generation == generation.number)
                yield from (found for found in own if found.name > told)
            else:
                names = [name for name in generation.receipt_names() if name > told]
                yield from readable_receipts(generation, names)

    def note(self, told: Iterable[Receipt]) -> None:
        """Note the given receipts as published.

        Args:
            told: The receipts, oldest first.

        Raises:
            ArchiveError: When the folder isn't writable.
        """
        now = self.before | {str(receipt.generation): receipt.name for receipt in told}
        ToldDocument(run=self.run, before=self.before, told=now).write(_path(self.archive))


def begin_publication(archive: Archive, run: str | None) -> Publication:
    """Return what a run is to publish. Must be called before the run seals anything.

    An archive without a note, such as one of an older release, gets one here: segments sealed
    before count as published, or as another run's. If the note can't be read, everything is
    published again.

    Raises:
        ArchiveError: When the folder isn't writable.
    """
    path = _path(archive)
    if not path.is_file():
        sealed = {str(g.number): g.receipt_names() for g in archive.snapshot().generations}
        newest = {number: names[-1] for number, names in sealed.items() if names}
        ToldDocument(run=run, before=newest, told=newest).create(path)
    document = ToldDocument.read_note(path)
    if document is None:
        return Publication(archive, run, {})
    is_again = run is not None and document.run == run
    return Publication(archive, run, document.before if is_again else document.told)


def unpublished_windows(
    archive: Archive, receipts: Iterable[Receipt], run: str | None
) -> list[Receipt]:
    """Return the receipts of windows that no other run has published, according to the notes."""
    return [receipt for receipt in receipts if not _is_published(archive, receipt, run)]


def _is_published(archive: Archive, receipt: Receipt, run: str | None) -> bool:
    note = ToldWindowDocument.read_note(_window_path(archive, receipt))
    if note is None:
        return False
    return note.sha256 == receipt.sha256 and (run is None or note.run != run)


def note_windows(archive: Archive, receipts: Iterable[Receipt], run: str | None) -> None:
    """Note that windows were published.

    Raises:
        ArchiveError: When the folder isn't writable.
    """
    for receipt in receipts:
        note = ToldWindowDocument(run=run, sha256=receipt.sha256)
        note.write(_window_path(archive, receipt))


def _path(archive: Archive) -> UPath:
    return archive.root / "told" / "generations.json"


def _window_path(archive: Archive, receipt: Receipt) -> UPath:
    return archive.root / "told" / "windows" / f"{receipt.window}.json"
