"""A reprocess that was begun and is given up: what it hasn't sealed goes, no other file does.

Pieces that are sealed stand by themselves. What they replaced, the next maintenance removes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.journal.checks import refuse_unsound
from kafka_drain.archive.window import Window
from kafka_drain.errors import ConfigError
from kafka_drain.storage.lease import hold_lease
from kafka_drain.windows.reprocess.state import (
    ReprocessPlan,
    reprocess_path,
    sealing_pieces,
    unfinished_reprocess,
)

__all__ = ["AbandonPlan", "abandon_reprocess", "plan_abandon"]


@dataclass(frozen=True)
class AbandonPlan:
    """What ends with a reprocess that is given up.

    Attributes:
        reprocess: The reprocess.
    """

    reprocess: ReprocessPlan

    def lines(self) -> list[str]:
        """Return the plan as people read it."""
        figures = self.to_dict()
        return [
            f"abandon {figures['archive']}: the reprocess from {figures['since']} ends here: "
            f"{figures['sealed']:,} of its windows are sealed and stay, {figures['unsealed']:,} "
            "aren't and go; the files that these were to replace stay"
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan's figures as JSON types."""
        waiting = len(self.reprocess.waiting)
        return {
            "archive": str(self.reprocess.archive.root),
            "since": self.reprocess.since,
            "sealed": len(self.reprocess.pieces) - waiting,
            "unsealed": waiting,
        }


def plan_abandon(archive: Archive) -> AbandonPlan:
    """Say what ends with the reprocess that was begun; changes nothing, and asks no Kafka.

    Raises:
        ArchiveError: When the folder is no archive.
        ConfigError: When none was begun.
        ManifestInvalidError: When something that was sealed is missing or changed: a window whose
            receipt is gone isn't one that was never sealed.
    """
    refuse_unsound(archive.snapshot())
    begun = unfinished_reprocess(archive)
    if begun is None:
        raise ConfigError(f"{archive.root}: no reprocess was begun that hasn't ended")
    return AbandonPlan(begun)


def abandon_reprocess(plan: AbandonPlan, *, run: str, say: Callable[[str], None]) -> None:
    """Remove the windows that aren't sealed, and the note that a reprocess was begun.

    Killed half way, the same again goes on.

    Args:
        plan: What to end.
        run: Who does it, for people.
        say: Takes lines.

    Raises:
        LockedError: When maintenance is at it, or a window is being sealed; a retry may help.
    """
    archive = plan.reprocess.archive
    with (
        hold_lease(archive.root / "maintenance", run=run, say=say),
        sealing_pieces(archive, run=run, say=say),
    ):
        for key in plan.reprocess.waiting:
            folder = Window(archive.root, key).folder
            if folder.exists():
                say(f"abandon {archive.root}: window {key}, which was never sealed, goes")
                folder.fs.rm(folder.path, recursive=True)
        # Last: what is left of a killed attempt is known by it.
        reprocess_path(archive).unlink(missing_ok=True)
    say(f"abandon {archive.root}: the reprocess from {plan.reprocess.since} has ended")
