"""The frozen plans in an archive's folder."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive import frozen_plans
from kafka_drain.archive.frozen_plan import (
    LIFETIME,
    FrozenPlan,
    PlanDecision,
    PlanState,
    expiry,
)
from kafka_drain.archive.frozen_plans import (
    KEPT,
    approved,
    carrying_out,
    freeze,
    freeze_plan,
    list_plans,
    read_plan,
    state_of,
)
from kafka_drain.errors import ArchiveError, ConfigError, PlanChangedError
from tests.kafka_drain.archive.test_frozen_plan import NOW, frozen
from tests.kafka_drain.made_archive import MadeArchive

APPROVED = {"kind": "maintain", "asked": {"days": 3}, "seen": {"files": 2}, "text": "2 files"}


@pytest.fixture
def root(tmp_path: Path) -> UPath:
    """An archive's folder."""
    return UPath(str(tmp_path))


def test_freeze_read(root: UPath) -> None:
    """A plan is read by its id; frozen twice, it is one plan."""
    plan = freeze(root, frozen(sha256=""), NOW)

    assert freeze(root, frozen(sha256=""), NOW) == plan
    assert list_plans(root) == [plan.id]
    assert read_plan(root, f" {plan.id}\n") == plan
    assert state_of(root, plan.id) is PlanState.NEW


@pytest.mark.parametrize(
    "plan_id",
    ["", "nothing", "../archive", "republish-20260101T120000Z-0123456789abcdef", "a/../../b"],
)
def test_read_unknown(root: UPath, plan_id: str) -> None:
    """An id that there isn't is refused, with those that there are; none leaves the folder."""
    (root / "archive.json").write_text("{}")
    plan = freeze(root, frozen(), NOW)

    with pytest.raises(ConfigError, match=f"its newest are {plan.id}"):
        read_plan(root, plan_id)


def test_read_none(root: UPath) -> None:
    """An archive without plans says so."""
    with pytest.raises(ConfigError, match="its newest are none"):
        read_plan(root, "republish")


def test_read_changed(root: UPath) -> None:
    """A changed byte is noticed, and so is another plan under the id of this one."""
    plan, other = (freeze(root, frozen(text=text), NOW) for text in ("one", "two"))
    path = root / "plans" / f"{plan.id}.json"

    content = path.read_bytes()
    for changed in (
        content.replace(b"one", b"ten"),
        b"",
        (root / "plans" / f"{other.id}.json").read_bytes(),
    ):
        path.write_bytes(changed)
        with pytest.raises(ArchiveError, match=r"was changed .* Nothing was done"):
            read_plan(root, plan.id)


@pytest.mark.parametrize("how", ["changed", "cut", "removed meanwhile"])
def test_freeze_beside_damaged(how: str, root: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged plan keeps nobody from making a new one, as the message about it says to do."""
    old = freeze(root, frozen(text="one"), NOW)
    path = root / "plans" / f"{old.id}.json"
    content = path.read_bytes()
    if how == "removed meanwhile":
        # By another dry run, which removes the old ones too.
        monkeypatch.setattr(frozen_plans, "list_plans", lambda _: [old.id])
        path.unlink()
    else:
        path.write_bytes(content.replace(b"one", b"ten") if how == "changed" else content[:40])

    plan = freeze(root, frozen(text="two"), NOW)

    assert read_plan(root, plan.id) == plan
    assert path.is_file() is (how != "removed meanwhile")


def test_carrying_out(root: UPath) -> None:
    """A plan whose body failed is started, and done once it has ended; both notes stay."""
    plan = freeze(root, frozen(), NOW)

    with pytest.raises(ZeroDivisionError), carrying_out(root, plan, "first"):
        raise ZeroDivisionError
    assert state_of(root, plan.id) is PlanState.STARTED
    with carrying_out(root, plan, "second"):
        assert state_of(root, plan.id) is PlanState.STARTED
    assert state_of(root, plan.id) is PlanState.DONE
    assert '"run": "first"' in (root / "plans" / f"{plan.id}.started.json").read_text()
    assert '"run": "second"' in (root / "plans" / f"{plan.id}.done.json").read_text()


@pytest.mark.parametrize("which", [".started", ".done"])
def test_state_of_other_plan(which: str, root: UPath) -> None:
    """A note that was put in another plan's place doesn't tell that this one was carried out.

    It stops no new plan. Half a note that a crash has left is one.
    """
    plan, other = (freeze(root, frozen(text=text), NOW) for text in ("this", "other"))
    with carrying_out(root, other, "run"):
        pass
    note, own = (root / "plans" / f"{each.id}{which}.json" for each in (other, plan))
    own.write_bytes(note.read_bytes())

    with pytest.raises(ArchiveError, match=rf"{which}\.json is of plan {other.id}.*a new plan"):
        state_of(root, plan.id)

    freeze(root, frozen(text="new"), NOW + timedelta(hours=1) + KEPT)
    assert plan.id in list_plans(root)
    own.write_bytes(note.read_bytes()[:9])
    assert state_of(root, plan.id) is not PlanState.NEW


@pytest.mark.parametrize("how", ["folder", "loop"])
def test_freeze_beside_what_is_no_file(how: str, root: UPath) -> None:
    """What can't be opened where a plan was stops no new one."""
    old = Path(str(root / "plans" / f"{freeze(root, frozen(text='old'), NOW).id}.json"))
    old.unlink()
    old.mkdir() if how == "folder" else old.symlink_to(old.name)

    assert freeze(root, frozen(text="new"), NOW).id in list_plans(root)


def test_freeze_removes_old(root: UPath) -> None:
    """A plan that nobody started goes a month after it has expired; a started one stays."""
    old, started = (freeze(root, frozen(text=text), NOW) for text in ("old", "started"))
    with pytest.raises(ZeroDivisionError), carrying_out(root, started, "run"):
        raise ZeroDivisionError

    expired = NOW + timedelta(hours=1)
    new = freeze(root, frozen(text="new"), expired + KEPT - timedelta(seconds=1))
    assert set(list_plans(root)) == {old.id, started.id, new.id}
    newer = frozen(text="newer", expires_at="2027-01-01T00:00:00+00:00")
    newer = freeze(root, newer, expired + KEPT)
    assert set(list_plans(root)) == {started.id, newer.id}


@pytest.mark.parametrize("lifetime", [None, timedelta(minutes=5)])
def test_freeze_plan(lifetime: timedelta | None, tmp_path: Path) -> None:
    """A plan is kept where runs keep their state, for its archive and the time that is asked."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"}).archive
    archive = made.keeping_state_in(str(tmp_path / "state"))
    given = {"lifetime": lifetime} if lifetime else {}

    plan = freeze_plan(archive, **APPROVED, now=NOW, **given)  # type: ignore[arg-type]

    assert (list_plans(made.root), list_plans(archive.state)) == ([], [plan.id])
    assert read_plan(archive.state, plan.id) == plan
    assert {name: getattr(plan, name) for name in APPROVED} == APPROVED
    assert (plan.pipeline, plan.archive_id) == ("made", archive.identity())
    assert (plan.created_at, plan.expires_at) == expiry(NOW, lifetime or LIFETIME)


def test_approved(tmp_path: Path) -> None:
    """What is left is planned again, unless it is refused already; what has changed refuses it."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"}).archive
    archive = made.keeping_state_in(str(tmp_path / "state"))
    plan = freeze_plan(archive, **APPROVED, now=NOW)  # type: ignore[arg-type]
    seen: list[FrozenPlan] = []

    def approve(*changes: str, kind: Any = "maintain", later: timedelta = timedelta(0)) -> Any:
        def plan_again(frozen: FrozenPlan) -> tuple[str, tuple[str, ...]]:
            seen.append(frozen)
            return "left", changes

        return approved(archive, kind, plan.id, now=NOW + later, plan_again=plan_again)

    assert approve() == ("left", plan, PlanDecision.RUN)
    with pytest.raises(PlanChangedError, match="a file is gone"):
        approve("a file is gone")
    assert seen == [plan, plan]
    with pytest.raises(PlanChangedError, match="had to be started by"):
        approve(later=LIFETIME + timedelta(seconds=1))
    with pytest.raises(PlanChangedError, match="this is a republish"):
        approve(kind="republish")
    assert seen == [plan, plan]
    with suppress(ZeroDivisionError), carrying_out(archive.state, plan, "run"):
        raise ZeroDivisionError
    assert approve("a file is gone", later=LIFETIME * 2)[2] is PlanDecision.RESUME
    with carrying_out(archive.state, plan, "run"):
        pass
    assert approve("a file is gone")[2] is PlanDecision.DO_NOTHING
