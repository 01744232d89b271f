"""Abandon an unfinished reprocess: its unsealed windows are removed, no other file is.

Windows that are sealed stay valid. The next maintenance removes the files they replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.soundness import refuse_unsound
from kafka_drain.archive.window import Window
from kafka_drain.errors import ConfigError
from kafka_drain.output import say
from kafka_drain.storage.lease import hold_lease
from kafka_drain.storage.object_retention import locked_in
from kafka_drain.storage.paths import exists
from kafka_drain.windows.reprocess.state import (
    ReprocessPlan,
    forget_reprocess,
    sealing_groups,
    unfinished_reprocess,
)


@dataclass(frozen=True)
class AbandonPlan:
    """The plan for abandoning a reprocess.

    Attributes:
        reprocess: The reprocess to abandon.
    """

    reprocess: ReprocessPlan

    def lines(self) -> list[str]:
        """Return the plan as lines of text for the user."""
        figures = self.to_dict()
        return [
            f"abandon {figures['archive']}: ends the reprocess from {figures['since']}: keeps "
            f"{figures['sealed']:,} sealed windows, removes {figures['unsealed']:,} unsealed ones; "
            "the files that the unsealed ones were to replace stay"
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan's figures as JSON types."""
        waiting = len(self.reprocess.waiting)
        return {
            "archive": str(self.reprocess.archive.root),
            "since": self.reprocess.since,
            "sealed": len(self.reprocess.groups) - waiting,
            "unsealed": waiting,
        }


def plan_abandon(archive: Archive) -> AbandonPlan:
    """Plan to abandon the unfinished reprocess, without changing anything or asking Kafka.

    Raises:
        ArchiveError: When the folder is not an archive.
        ConfigError: When there is no unfinished reprocess.
        ManifestInvalidError: When something sealed is missing or changed: a window whose receipt
            was lost must not be mistaken for one that was never sealed.
    """
    refuse_unsound(archive.snapshot())
    begun = unfinished_reprocess(archive)
    if begun is None:
        raise ConfigError(f"{archive.root}: there is no unfinished reprocess to abandon")
    return AbandonPlan(begun)


def abandon_reprocess(plan: AbandonPlan, *, run: str) -> None:
    """Remove the unsealed windows, and the note about the unfinished reprocess.

    If killed half way, running it again continues.

    Args:
        plan: The plan to carry out.
        run: Name of this run, for display.

    Raises:
        LockedError: When maintenance is running, or a window is being sealed; a retry may help.
    """
    archive = plan.reprocess.archive
    with (
        hold_lease(archive.root / "maintenance", run=run),
        sealing_groups(archive, run=run),
    ):
        for key in plan.reprocess.waiting:
            folder = Window(archive.root, key).folder
            if exists(folder):
                if (locked := locked_in(folder)).files:
                    say(
                        f"abandon {archive.root}: keeping window {key}, which was never sealed: "
                        f"{locked}; no reader uses it"
                    )
                    continue
                # Another reprocess may have sealed one of the name while this one was suspended.
                if not Window(archive.root, key).has_receipt():
                    say(f"abandon {archive.root}: removing window {key}, which was never sealed")
                    folder.fs.rm(folder.path, recursive=True)
        # Last, because a rerun finds what a killed attempt left by it.
        forget_reprocess(plan.reprocess)
    say(f"abandon {archive.root}: the reprocess from {plan.reprocess.since} has been abandoned")
