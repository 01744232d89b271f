"""A republish's folder in the archive, `republish/<key>/`.

plan.json         which records go where; written once, before anything else
plan.2.json …     a plan that replaced it before the run opened; the last one counts
opened.json       the progress of all shards is in Kafka; nothing was sent before this file
offset-map.json   source offsets to target offsets
receipt.json      the run has finished, with what verify found; afterwards it sends nothing more
abandoned.json    a user has abandoned the run; it sends nothing more

Next to the runs, `openings/` records which of them may open (openings.py).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from upath import UPath

from kafka_drain.archive.state_folder import arguments_of
from kafka_drain.errors import ArchiveError, NotWritableError
from kafka_drain.republish.planning.documents import (
    AbandonedJson,
    OpenedJson,
    ReceiptJson,
    parse,
    parse_sealed,
)
from kafka_drain.republish.planning.plan import UNOPENED_FILES, RepublishPlan
from kafka_drain.storage.json_files import create_document, create_text, write_text
from kafka_drain.storage.paths import is_file, list_folder, read_if_there
from kafka_drain.storage.sealed_json import seal
from kafka_drain.storage.typed_json import reason_of

_FOLDER = "republish"

_NUMBERED = re.compile(r"plan\.(\d+)\.json")

#: Key of a drill's run.
_DRILL = re.compile(r"drill-\d{8}T\d{6}Z-[0-9a-f]{8}-[0-9a-f]{12}")

#: Key of a mirror's run, as follow.py numbers them.
_OF_FOLLOWER = re.compile(r"(follow-.*-[0-9a-f]{12})\.\d{6}")

#: A folder next to the runs' folders. It can't collide with a run's key, as those end in a hash.
OPENINGS = "openings"


def run_key(name: str) -> str:
    """Return a run's name in the form used in folders, transactional ids and groups.

    It is readable, has at most 61 characters, and is different for each name. A part of the name in
    braces goes only into the hash.
    """
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", name.partition("{")[0]).strip("-.")[:48]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def follower_of(key: str) -> str | None:
    """Return the prefix of the keys of a mirror's runs; None if the run isn't a mirror's."""
    found = _OF_FOLLOWER.fullmatch(key)
    return None if found is None else found[1]


def drill_run(drill: str) -> str:
    """Return the name of a drill's run."""
    return f"drill {drill}"


@dataclass(frozen=True, slots=True)
class RepublishRun:
    """One republish, across all of its attempts.

    Attributes:
        root: The archive's folder, or the one with its runs' state.
        key: Name of the run's folder.
    """

    root: UPath
    key: str

    @property
    def folder(self) -> UPath:
        """The run's folder."""
        return self.root / _FOLDER / self.key

    @property
    def is_of_drill(self) -> bool:
        """Whether a drill made it: its target is gone."""
        return _DRILL.fullmatch(self.key) is not None

    @property
    def abandoning(self) -> str:
        """The command that abandons the run, in backquotes."""
        return f"`kafka-drain republish {arguments_of(self.root)} --abandon {self.key} --apply`"

    def plan(self, way_out: str | None = None) -> RepublishPlan | None:
        """Read the plan; None when the run hasn't been planned yet.

        Args:
            way_out: The other remedy if it was changed; continues the advice. None for ending the
                run, unless it is over.

        Raises:
            ArchiveError: When its bytes were changed, or it is another run's.
        """
        names = list_folder(self.folder)
        number = _newest(names)
        started = self._started_with() if "opened.json" in names else ""
        plan = self._plan(number, way_out)
        if plan is None or started in ("", plan.sha256):
            return plan
        # An attempt that was killed may have left a plan that came too late to count.
        older = (self._plan(each, way_out) for each in range(number - 1, 0, -1))
        found = next((each for each in older if each and each.sha256 == started), None)
        if found is None:
            raise ArchiveError(
                f"{self.folder / 'opened.json'} says that run {self.key} started with another plan "
                f"than {self._plan_path(number).name}, so it is unknown which records it has sent; "
                f"restore the missing plan from a copy{self._way_out(way_out)}. Nothing more was "
                "sent"
            )
        return found

    def _started_with(self) -> str:
        """Return the hash of the plan that the run has opened with; empty if nothing says it."""
        try:
            return parse(OpenedJson, read_if_there(self.folder / "opened.json") or b"")["plan"]
        except ValueError:
            # A crash may leave half a file, where a file system has no hard links.
            return ""

    def _way_out(self, given: str | None) -> str:
        """Return the other remedy if a plan is missing or was changed; continues the advice."""
        if given is not None:
            return given
        is_over = self.has_ended or self.is_abandoned
        return "" if is_over else f", or end the run with {self.abandoning}"

    def require_plan(self, way_out: str = "") -> RepublishPlan:
        """Read the plan of a run that has started to send: without it, its records are unknown.

        Args:
            way_out: The other remedy if it is missing or was changed; continues the advice.

        Raises:
            ArchiveError: When it is missing, its bytes were changed, or it is another run's.
        """
        plan = self.plan(way_out)
        if plan is None:
            raise ArchiveError(
                f"{self.folder / 'plan.json'} is missing, so it is unknown which records run "
                f"{self.key} has sent; restore it from a copy{way_out}. Nothing was changed"
            )
        return plan

    def _plans(self) -> int:
        """Return the number of plans so far; only a run that hasn't opened gets another one."""
        return _newest(list_folder(self.folder))

    def _plan_path(self, number: int) -> UPath:
        return self.folder / ("plan.json" if number <= 1 else f"plan.{number}.json")

    def _plan(self, number: int, way_out: str | None = None) -> RepublishPlan | None:
        path = self._plan_path(number)
        content = read_if_there(path)
        if content is None:
            return None
        try:
            plan = RepublishPlan.parse(content)
        except ValueError as error:
            raise ArchiveError(
                f"{path} was changed ({reason_of(error)}), expected the plan that this run started "
                f"with; restore it from a copy{self._way_out(way_out)}. Nothing more was sent"
            ) from error
        self._refuse_other(path, plan.key)
        return plan

    def _refuse_other(self, path: UPath, key: str) -> None:
        """Refuse a document of another run: what that has sent says nothing of this one."""
        if key != self.key:
            raise ArchiveError(
                f"{path} is of run {key}, expected run {self.key}: it was put in another's place; "
                f"restore it from a copy, or if {self.folder} is itself a copy, move it out of the "
                "archive. Nothing more was sent"
            )

    def require_writable(self) -> None:
        """Write to the run's folder, and remove what was written.

        Raises:
            ArchiveError: When that isn't possible.
        """
        probe = self.folder / "writable"
        try:
            write_text(probe, "")
            # A store that locks what is written keeps it: it says nothing.
            with suppress(OSError):
                probe.unlink()
        except (OSError, NotWritableError) as error:
            raise NotWritableError(
                f"{self.folder} can't be written ({error}), where a republish keeps its plan and "
                "its receipt; make it writable. Nothing was created or sent"
            ) from error

    def write_plan(
        self, plan: RepublishPlan, replacing: RepublishPlan | None = None
    ) -> RepublishPlan:
        """Write the plan unless there is one already, and return the plan that counts.

        Args:
            replacing: The plan that it replaces if the run hasn't opened.
        """
        names = list_folder(self.folder)
        number = _newest(names)
        if number == 0 and "opened.json" in names:
            # Another plan would hide that it is unknown what was sent.
            return self.require_plan(self._way_out(None))
        if number == 0 or (
            replacing is not None and self._plan(number) == replacing and not self.is_opened
        ):
            number += 1
            path = self._plan_path(number)
            is_mine = create_text(path, plan.to_bytes().decode("utf-8"))
            if is_mine and number > 1 and self.is_opened:
                # An attempt has opened with the previous plan in the meantime.
                path.unlink()
        written = self.plan()
        if written is None:
            raise ArchiveError(f"{self.folder / 'plan.json'} was removed while it was written")
        return written

    def replaced(self) -> set[str]:
        """Return the hashes of the plans that the current one replaces."""
        plans = map(self._plan, range(1, self._plans()))
        return {plan.sha256 for plan in plans if plan is not None}

    @property
    def is_opened(self) -> bool:
        """Return whether the progress of all shards was written to Kafka."""
        return is_file(self.folder / "opened.json")

    def mark_opened(self, plan: RepublishPlan) -> None:
        """Record that the progress of all shards is in Kafka."""
        document: OpenedJson = {"plan": plan.sha256, "shards": len(plan.shards)}
        create_document(self.folder / "opened.json", document)

    @property
    def has_ended(self) -> bool:
        """Return whether the run has its receipt."""
        return is_file(self.folder / "receipt.json")

    @property
    def is_abandoned(self) -> bool:
        """Return whether a user has abandoned the run, without a receipt."""
        return is_file(self.folder / "abandoned.json")

    def abandon(self, at: datetime) -> None:
        """Record that the run won't be resumed."""
        document: AbandonedJson = {"at": at.isoformat()}
        create_document(self.folder / "abandoned.json", document)

    def needs_its_files(self, now: datetime) -> bool:
        """Return whether an attempt may still read the files of the plan.

        A run that has opened can resume as long as Kafka keeps its progress, and how long that is
        isn't known here. A run that never opened is planned again after some days.
        """
        if self.has_ended or self.is_abandoned:
            return False
        if self.is_opened:
            return True
        plan = self.plan()
        return plan is not None and not plan.is_older(UNOPENED_FILES, now)

    def receipt(self) -> ReceiptJson | None:
        """Read the receipt; None when the run hasn't finished.

        Raises:
            ArchiveError: When its bytes were changed, or it is another run's.
        """
        path = self.folder / "receipt.json"
        content = read_if_there(path)
        if content is None:
            return None
        try:
            receipt = parse_sealed(ReceiptJson, content)
        except ValueError as error:
            raise ArchiveError(f"{path} was changed ({error}); restore it from a copy") from error
        self._refuse_other(path, receipt["key"])
        return receipt

    def write_receipt(self, receipt: ReceiptJson) -> bool:
        """Write the receipt unless there is one already; return False if there is."""
        return create_text(self.folder / "receipt.json", seal(receipt).decode())

    def write_offset_map(self, content: bytes) -> None:
        """Write the offset map; running verify again writes the same one."""
        write_text(self.folder / "offset-map.json", content.decode())

    def offset_map(self) -> bytes | None:
        """Read the offset map; None when there is none."""
        return read_if_there(self.folder / "offset-map.json")


def _newest(names: Collection[str]) -> int:
    """Return the number of the newest plan, given the names in a run's folder; 0 for none."""
    numbered = [int(found[1]) for name in names if (found := _NUMBERED.fullmatch(name))]
    return max(numbered, default=int("plan.json" in names))


def named_runs(root: UPath, name: str) -> list[RepublishRun]:
    """Return the runs that a user may name so: by the key, which is the folder's name, or not."""
    return [RepublishRun(root, key) for key in (name, run_key(name))]


def list_runs(root: UPath) -> Iterator[RepublishRun]:
    """Yield an archive's runs, sorted by key."""
    for name in sorted(list_folder(root / _FOLDER)):
        if name != OPENINGS:
            yield RepublishRun(root, name)
