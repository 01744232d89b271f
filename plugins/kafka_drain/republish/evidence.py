"""Sign the receipt of a republish that has ended."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import ArchiveError
from kafka_drain.republish.planning.runs import RepublishRun

if TYPE_CHECKING:
    from kafka_drain.evidence.signing import Signer

#: Files of a run that its receipt rests on.
_FILES = ("receipt.json", "offset-map.json")

#: Keys of the receipt that later runs need; they may be large, and their hash is signed.
_FOR_RUNS = ("sent", "through")


def sign_run(archive: Archive, run: RepublishRun, signer: Signer, now: datetime) -> str:
    """Sign a run's receipt, and the hashes of its files; return the path of the statement.

    Args:
        signer: The key.

    Raises:
        ArchiveError: When the run has no receipt, or the archive can't be written.
    """
    # Not at the top: most republishes sign nothing.
    from kafka_drain.evidence.signing import sign

    receipt = run.receipt()
    if receipt is None:
        raise ArchiveError(f"run {run.key} has no receipt, so there is nothing to sign")
    document = {name: value for name, value in receipt.items() if name not in _FOR_RUNS}
    files = [f"republish/{run.key}/{name}" for name in _FILES if (run.folder / name).is_file()]
    return sign(archive, signer, "republish", run.key, document, files, now)
