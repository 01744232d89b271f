"""The frozen plans of an archive, in `plans/`.

<id>.json           a plan, written once
<id>.started.json   it was started
<id>.done.json      it has been carried out

A republish has neither note: its run's folder says how far it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.format import FORMAT_VERSION
from kafka_drain.archive.frozen_plan import (
    LIFETIME,
    FrozenPlan,
    PlanDecision,
    PlanState,
    expiry,
)
from kafka_drain.clock import Clock, utc_now
from kafka_drain.config.verbs import APPROVABLE, Approvable
from kafka_drain.errors import ArchiveError, ConfigError
from kafka_drain.storage.json_files import create_document, create_text, read_note
from kafka_drain.storage.paths import is_file, list_folder, read_if_there
from kafka_drain.storage.typed_json import reason_of

#: The archive's folder of plans.
FOLDER = "plans"

#: Time for which a plan that was never started is kept after it has expired.
KEPT = timedelta(days=30)

PlanT = TypeVar("PlanT")

_ID = re.compile(rf"({'|'.join(APPROVABLE)})-\d{{8}}T\d{{6}}Z-[0-9a-f]{{16}}")


def freeze(root: UPath, plan: FrozenPlan, now: datetime) -> FrozenPlan:
    """Write a plan, and remove those that nobody has started and that expired long ago.

    Returns:
        The plan with its hash, and so with its id.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    sealed = plan.sealed()
    # If it exists, it is the same: the name has its hash.
    create_text(_path(root, sealed.value.id), sealed.content.decode())
    for old in list_plans(root):
        try:
            is_old = read_plan(root, old).is_expired(now - KEPT)
            is_new = is_old and state_of(root, old) is PlanState.NEW
        except (ArchiveError, ConfigError, OSError):
            # Damaged, a folder, of a newer release, or just removed by another dry run: no reason
            # to refuse a new plan, which is the way out.
            continue
        if is_new:
            _path(root, old).unlink(missing_ok=True)
    return sealed.value


def freeze_plan(
    archive: Archive,
    kind: Approvable,
    *,
    asked: Mapping[str, Any],
    seen: Mapping[str, Any],
    text: str,
    now: datetime,
    lifetime: timedelta = LIFETIME,
) -> FrozenPlan:
    """Write a dry run's plan to the archive's `plans/`; see `FrozenPlan` and `freeze`."""
    created_at, expires_at = expiry(now, lifetime)
    plan = FrozenPlan(
        kind=kind,
        pipeline=archive.snapshot().document.pipeline,
        archive_id=archive.identify(),
        created_at=created_at,
        expires_at=expires_at,
        asked=asked,
        seen=seen,
        text=text,
    )
    return freeze(archive.state, plan, now)


@dataclass(frozen=True)
class Approval:
    """A frozen plan that is about to be carried out in an archive.

    Attributes:
        kind: The verb to carry out.
        pipeline: Name of the archive's pipeline.
        archive_id: The archive's id; None if it has none.
        now: When it is to be started.
    """

    frozen: FrozenPlan
    kind: Approvable
    pipeline: str
    archive_id: str | None
    now: datetime

    @classmethod
    def of(cls, archive: Archive, kind: Approvable, plan_id: str, now: datetime) -> Approval:
        """Read a plan.

        Raises:
            ConfigError: When there is none with this id.
            ArchiveError: When its bytes were changed.
        """
        frozen = read_plan(archive.state, plan_id)
        return cls(frozen, kind, archive.snapshot().document.pipeline, archive.identity(), now)

    def proceed(self, state: PlanState, changes: Sequence[str] = ()) -> PlanDecision:
        """Decide about the plan; see `FrozenPlan.proceed`."""
        return self.frozen.proceed(
            state,
            kind=self.kind,
            pipeline=self.pipeline,
            archive_id=self.archive_id,
            now=self.now,
            changes=changes,
        )


def approved(
    archive: Archive,
    kind: Approvable,
    plan_id: str,
    *,
    now: datetime,
    plan_again: Callable[[FrozenPlan], tuple[PlanT, Sequence[str]]],
) -> tuple[PlanT, FrozenPlan, PlanDecision]:
    """Load a frozen plan, if it would still do what was seen; changes nothing.

    Args:
        archive: The archive to carry it out in.
        kind: The verb to carry out.
        plan_id: The plan's id.
        now: The time at which it is to be started.
        plan_again: Makes the plan again, unless it is refused already; returns what is left to do,
            and what has changed since it was seen.

    Returns:
        The rest of the plan, the frozen plan, and the decision: RUN, RESUME or DO_NOTHING.

    Raises:
        PlanChangedError: When it has expired, or something has changed; says what.
        ConfigError: When there is no such plan.
        ArchiveError: When its bytes were changed.
    """
    approval = Approval.of(archive, kind, plan_id, now)
    state = state_of(archive.state, approval.frozen.id)
    approval.proceed(state)
    plan, changes = plan_again(approval.frozen)
    return plan, approval.frozen, approval.proceed(state, changes)


def list_plans(root: UPath) -> list[str]:
    """Return the ids of an archive's plans, sorted."""
    names = (name.removesuffix(".json") for name in list_folder(root / FOLDER))
    return sorted(filter(_ID.fullmatch, names))


def read_plan(root: UPath, plan_id: str) -> FrozenPlan:
    """Read a plan.

    Raises:
        ConfigError: When there is none with this id.
        ArchiveError: When its bytes were changed.
    """
    plan_id = plan_id.strip()
    path = _path(root, plan_id)
    # The pattern also keeps an id from naming a file elsewhere.
    content = read_if_there(path) if _ID.fullmatch(plan_id) else None
    if content is None:
        known = ", ".join(list_plans(root)[-5:])
        raise ConfigError(
            f"{root} has no plan {plan_id!r}; its newest are {known or 'none'}. A dry run that "
            "freezes its plan says its id"
        )
    try:
        plan = FrozenPlan.parse(content)
        if plan.id != plan_id:
            raise ValueError(f"its content is that of {plan.id}")
    except ValueError as error:
        raise ArchiveError(
            f"{path} was changed ({reason_of(error)}), expected the plan that was frozen; make a "
            "new one. Nothing was done"
        ) from error
    return plan


def state_of(root: UPath, plan_id: str) -> PlanState:
    """Return the progress of a plan, other than a republish.

    Raises:
        ArchiveError: When a note of it is another plan's.
    """
    if _has_note(root, plan_id, ".done"):
        return PlanState.DONE
    return PlanState.STARTED if _has_note(root, plan_id, ".started") else PlanState.NEW


def _has_note(root: UPath, plan_id: str, which: str) -> bool:
    path = _path(root, plan_id, which)
    if not is_file(path):
        return False
    # A note of which a crash has left half is there all the same.
    note = read_note(path, "plan")
    if note is not None and note["plan"] != plan_id:
        raise ArchiveError(
            f"{path} is of plan {note['plan']}, expected {plan_id}: it was put in another's place; "
            "restore it from a copy, or make a new plan. Nothing was done"
        )
    return True


@contextmanager
def carrying_out(root: UPath, plan: FrozenPlan, run: str, clock: Clock = utc_now) -> Iterator[None]:
    """Record that the body starts a plan, and if it ends without an error, that it is done.

    Args:
        plan: The plan; not a republish's.
        run: Name of the run that does it, for display.
        clock: Returns the current time; replaced in tests.
    """
    _note(root, plan.id, ".started", run, clock())
    yield
    _note(root, plan.id, ".done", run, clock())


def _note(root: UPath, plan_id: str, which: str, run: str, now: datetime) -> None:
    at = now.isoformat(timespec="milliseconds")
    document = {"format_version": FORMAT_VERSION, "plan": plan_id, "run": run, "at": at}
    create_document(_path(root, plan_id, which), document)


def _path(root: UPath, plan_id: str, which: str = "") -> UPath:
    return root / FOLDER / f"{plan_id}{which}.json"
