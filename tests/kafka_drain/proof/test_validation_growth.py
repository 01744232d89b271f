"""What a validation costs must not grow faster than the archive."""

from __future__ import annotations

from pathlib import Path

from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.counting import calls_of
from tests.kafka_drain.made_archive import MadeArchive, dense

T0 = TopicPartition("t", 0)


def work(folder: Path, closed: int) -> int:
    """Return the calls of a validation of closed generations that were all compacted."""
    made = MadeArchive(folder, {"t": "1"})
    for number in range(closed):
        [file] = made.seal({T0: dense(5 * number, 5 * number + 5)})
        made.seal_window(
            f"compact_{number:04}", {T0: dense(5 * number, 5 * number + 5)}, [file.path]
        )
        made.open_generation()
    made.start_at({T0: 5 * closed})
    return calls_of(lambda: validate_archive(made.archive, None, writes=False))


def test_validation_of_many_generations_and_windows(tmp_path: Path) -> None:
    """A generation that is whole isn't compared with each window."""
    few, more, many = (work(tmp_path / str(closed), closed) for closed in (8, 20, 32))

    assert many - more < 1.03 * (more - few)
