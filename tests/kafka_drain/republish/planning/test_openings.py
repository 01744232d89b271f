"""Which run may open: of those with the same records and target one, wherever they meet or end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.errors import ArchiveError, ConfigError
from kafka_drain.republish.planning import openings
from kafka_drain.republish.planning.openings import (
    Claim,
    ClaimDecision,
    ClaimState,
    claim_opening,
    decide,
)
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.runs import RepublishRun, list_runs
from kafka_drain.storage.json_files import read_document, write_document
from tests.kafka_drain.made_archive import NOW
from tests.kafka_drain.republish.planning.test_plan import PLAN
from tests.kafka_drain.republish.planning.test_previous_runs import plan_of
from tests.kafka_drain.republish.receipts import receipt_of
from tests.tables import each_of

#: More calls of the file system than an opening takes here.
CALLS = 14


#: What makes a claim a danger, by its state, and what is done about it then.
DANGERS: dict[ClaimState, tuple[set[str], ClaimDecision]] = {
    ClaimState.UNDECIDED: ({"unreadable", "of earlier plan", "overlaps"}, ClaimDecision.WITHDRAW),
    # Its run's folder says what an unreadable claim that was opened has sent.
    ClaimState.OPENED: ({"of earlier plan", "overlaps"}, ClaimDecision.REFUSE),
    ClaimState.WITHDRAWN: (set(), ClaimDecision.PASS),
}


@each_of("state", list(ClaimState))
@each_of("is_readable", [True, False])
@each_of("is_of_earlier_plan", [False, True])
@each_of("overlaps", [False, True])
def test_decide(
    state: ClaimState, is_readable: bool, is_of_earlier_plan: bool, overlaps: bool
) -> None:
    """Only a claim that may send records twice counts, and only an opened one for good."""
    seen = {"unreadable": not is_readable, "of earlier plan": is_of_earlier_plan}
    seen["overlaps"] = overlaps
    dangers, decision = DANGERS[state]
    is_danger = any(seen[danger] for danger in dangers)

    assert decide(
        state,
        is_readable=is_readable,
        is_of_earlier_plan=is_of_earlier_plan,
        overlaps=overlaps,
    ) is (decision if is_danger else ClaimDecision.PASS)


FIRST = {
    "nobody": None,
    "its run": lambda claim: claim.confirm(),
    "b": lambda claim: claim.withdraw("b"),
    "c": lambda claim: claim.withdraw("c"),
}


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("then", ["its run", "b"])
def test_claim_decided_once(tmp_path: Path, first: str, then: str) -> None:
    """The first decision counts; whoever decides alike later, or again, is told that it holds."""
    claim = Claim(UPath(tmp_path), 1, "a")
    if decide_first := FIRST[first]:
        decide_first(claim)
    opens = (then if first == "nobody" else first) == "its run"

    if then == "b":
        assert claim.withdraw("b") is not opens
    elif opens:
        claim.confirm()
    else:
        with pytest.raises(ConfigError) as caught:
            claim.confirm()
        assert str(caught.value).startswith(
            f"run {first} started to send the same records at the same moment: they would be"
        )

    assert claim.state() is (ClaimState.OPENED if opens else ClaimState.WITHDRAWN)


def test_claim_undecided(tmp_path: Path) -> None:
    """A claim that nobody has decided is undecided."""
    assert Claim(UPath(tmp_path), 1, "a").state() is ClaimState.UNDECIDED


def test_claim_decision_changed(tmp_path: Path) -> None:
    """A decision that was changed is named, and decides nothing."""
    claim = Claim(UPath(tmp_path), 1, "a")
    claim.confirm()
    path = RepublishRun(UPath(tmp_path), openings.OPENINGS).folder / "00000001.decided.json"
    path.write_text("{}")

    with pytest.raises(ArchiveError, match=r"00000001\.decided\.json was changed .*; restore it"):
        claim.state()


#: What a run's folder holds, and whether that tells all that the run's claim does.
FOLDERS: dict[str, tuple[Callable[[RepublishRun], object], bool]] = {
    "no folder": (lambda run: None, False),
    "planned": (lambda run: run.write_plan(plan_of("a")), False),
    "abandoned": (lambda run: run.abandon(NOW), False),
    "opened": (lambda run: run.mark_opened(PLAN), True),
    "ended": (lambda run: run.write_receipt(receipt_of(key=run.key)), True),
}


@pytest.mark.parametrize("state", list(ClaimState), ids=lambda state: state.value)
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("is_readable", [True, False], ids=["readable", "unreadable"])
def test_claim_is_settled(
    tmp_path: Path, state: ClaimState, folder: str, is_readable: bool
) -> None:
    """A withdrawn claim is settled, and one whose run's folder says that it opened or ended."""
    root = UPath(tmp_path)
    leave, tells = FOLDERS[folder]
    leave(RepublishRun(root, "a"))
    claim = Claim(root, 1, "a" if is_readable else "")
    if state is ClaimState.OPENED:
        claim.confirm()
    elif state is ClaimState.WITHDRAWN:
        claim.withdraw("b")

    assert claim.is_settled() is (state is ClaimState.WITHDRAWN or (is_readable and tells))


class Killed(BaseException):
    """As a SIGKILL."""


def open_run(root: UPath, plan: RepublishPlan, *, repeat: bool = False) -> str | None:
    """Open a run as `Republish.execute` does; return why it was refused, None when it opened."""
    run = RepublishRun(root, plan.key)
    try:
        run.write_plan(plan)
        claim = None if run.is_opened else claim_opening(root, plan, repeat=repeat)
        if claim is not None:
            claim.confirm()
        run.mark_opened(PLAN)
    except ConfigError as error:
        return str(error)
    return None


def opened(root: UPath) -> list[str]:
    return [run.key for run in list_runs(root) if run.is_opened]


@contextmanager
def at_call(number: int, act: Callable[[], object]) -> Iterator[None]:
    """Do something once, before a call by which an opening reads or writes the file system."""
    calls = 0

    def wrap(real: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                act()
            return real(*arguments, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("create_document", "read_bytes", "refuse_repeated"):
            patch.setattr(openings, name, wrap(getattr(openings, name)))
        patch.setattr(openings, "_numbers", wrap(openings._numbers))
        patch.setattr(RepublishRun, "mark_opened", wrap(RepublishRun.mark_opened))
        yield


@pytest.mark.parametrize("first", range(1, CALLS))
@pytest.mark.parametrize("second", range(0, CALLS, 2))
def test_claim_opening_meets_others(tmp_path: Path, first: int, second: int) -> None:
    """Wherever a run meets a second one, and that one a third: one opens, the others name a run."""
    root = UPath(tmp_path)
    a, b, c = (plan_of(key) for key in ("a", "b", "c"))
    answers: list[str | None] = []

    def run_b() -> None:
        with at_call(second, lambda: answers.append(open_run(root, c))):
            answers.append(open_run(root, b))

    with at_call(first, run_b):
        answers.append(open_run(root, a))

    assert len(opened(root)) == 1
    assert answers.count(None) == 1
    for answer in answers:
        assert answer is None or answer.startswith(("run a ", "run b ", "run c ")), answer
    # Whoever comes later finds it as well.
    assert str(open_run(root, plan_of("d"))).startswith(f"run {opened(root)[0]} started to send")


@pytest.mark.parametrize("first", range(1, CALLS))
def test_claim_opening_killed(tmp_path: Path, first: int) -> None:
    """A run that is killed before it opens keeps no other out; the same run may try again."""
    root = UPath(tmp_path)

    def die() -> None:
        raise Killed

    try:
        with at_call(first, die):
            open_run(root, plan_of("a"))
    except Killed:
        pass
    was_decided = any(
        claim.state() is ClaimState.OPENED for claim in (Claim(root, 1, "a"), Claim(root, 2, "a"))
    )

    answer = open_run(root, plan_of("b"))

    assert (answer is None) != was_decided
    assert (open_run(root, plan_of("a")) is None) == was_decided
    assert len(opened(root)) == 1


def test_claim_opening_paused(tmp_path: Path) -> None:
    """A run that was paused beside another's opening sends nothing, and names it."""
    root = UPath(tmp_path)
    a, b = plan_of("a"), plan_of("b")
    RepublishRun(root, "a").write_plan(a)
    claim = claim_opening(root, a, repeat=False)
    assert open_run(root, b) is None

    for _ in range(2):
        with pytest.raises(ConfigError, match=r"run b started to send .* Nothing was sent"):
            claim.confirm()


@pytest.mark.parametrize(
    ("other", "repeat"),
    [(plan_of("b", 10, 20), False), (plan_of("b", target_id="other"), False), (plan_of("b"), True)],
    ids=["other records", "other target", "repeat"],
)
def test_claim_opening_beside(tmp_path: Path, other: RepublishPlan, repeat: bool) -> None:
    """Runs with other records or targets, or that may repeat, open beside each other."""
    root = UPath(tmp_path)
    a = plan_of("a")
    RepublishRun(root, "a").write_plan(a)
    claim = claim_opening(root, a, repeat=False)

    assert open_run(root, other, repeat=repeat) is None

    claim.confirm()
    RepublishRun(root, "a").mark_opened(PLAN)
    assert opened(root) == ["a", "b"]


def test_claim_opening_of_follower(tmp_path: Path) -> None:
    """Two attempts of a follower's run don't stand in each other's way."""
    root = UPath(tmp_path)
    plan = plan_of("f.000001", through={"generations": {}, "windows": []})
    RepublishRun(root, plan.key).write_plan(plan)
    first = claim_opening(root, plan, repeat=False)
    second = claim_opening(root, plan, repeat=False)

    second.confirm()
    first.confirm()

    assert [first.number, second.number] == [1, 2]


def test_claim_opening_reads_what_is_new(tmp_path: Path) -> None:
    """Claims of which the runs' folders tell all aren't read again."""
    root = UPath(tmp_path)
    for number in range(20):
        assert open_run(root, plan_of(f"r{number}", number, number + 1)) is None
    folder = RepublishRun(root, openings.OPENINGS).folder
    for number in range(1, 19):
        (folder / f"{number:08d}.json").unlink()

    assert open_run(root, plan_of("last", 20, 21)) is None


def claim_path(root: UPath, number: int) -> UPath:
    return RepublishRun(root, openings.OPENINGS).folder / f"{number:08d}.json"


@pytest.mark.parametrize("content", ["", '{"run": "a"', "{}"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_claim_opening_half_written(tmp_path: Path, content: str, number: int) -> None:
    """A claim of which a crash left half locks nobody out; its run can't open by it any more."""
    root = UPath(tmp_path)
    for other in range(1, number):
        assert open_run(root, plan_of(f"r{other}", other, other + 1)) is None
    RepublishRun(root, "z").write_plan(plan_of("z", 90, 91))
    paused = claim_opening(root, plan_of("z", 90, 91), repeat=False)
    claim_path(root, number).write_text(content)

    assert open_run(root, plan_of("b", 90, 91)) is None
    assert str(open_run(root, plan_of("c", 90, 91))).startswith("run b started to send")
    with pytest.raises(ConfigError, match="run b started to send"):
        paused.confirm()
    # It is settled then, and not read again.
    assert open_run(root, plan_of("d", 80, 81)) is None
    assert read_document(claim_path(root, number + 3))["settled"] >= number


def test_claim_opening_half_written_opened(tmp_path: Path) -> None:
    """A claim that was opened and is unreadable now stands in nobody's way: its run tells all."""
    root = UPath(tmp_path)
    assert open_run(root, plan_of("a")) is None
    claim_path(root, 1).write_text("")

    assert open_run(root, plan_of("b", 10, 20)) is None
    assert str(open_run(root, plan_of("c"))).startswith("run a started to send")


def test_claim_opening_refused_withdraws_nobody(tmp_path: Path) -> None:
    """A run that is refused for one run's sake takes no other's place."""
    root = UPath(tmp_path)
    RepublishRun(root, "a").write_plan(plan_of("a", 0, 10))
    waiting = claim_opening(root, plan_of("a", 0, 10), repeat=False)
    RepublishRun(root, "b").write_plan(plan_of("b", 10, 20))
    # Killed between the two: its claim alone says that it has opened.
    claim_opening(root, plan_of("b", 10, 20), repeat=False).confirm()

    assert str(open_run(root, plan_of("c", 0, 20))).startswith("run b started to send")
    waiting.confirm()


def test_claim_opening_settles_older_claims(tmp_path: Path) -> None:
    """An undecided claim of a run that opened by a later one is settled, and not read again."""
    root = UPath(tmp_path)
    RepublishRun(root, "a").write_plan(plan_of("a"))
    claim_opening(root, plan_of("a"), repeat=False)
    assert open_run(root, plan_of("a")) is None

    assert open_run(root, plan_of("b", 10, 20)) is None
    assert read_document(claim_path(root, 3))["settled"] == 2


@pytest.mark.parametrize("is_opened", [False, True])
@pytest.mark.parametrize("repeat", [False, True])
def test_claim_opening_planned_again(tmp_path: Path, is_opened: bool, repeat: bool) -> None:
    """An attempt with the plan before can't open any more; where it has, the later one doesn't."""
    root = UPath(tmp_path)
    run = RepublishRun(root, "a")
    first = run.write_plan(plan_of("a"))
    older = claim_opening(root, first, repeat=repeat)
    if is_opened:
        # Killed before its folder said so.
        older.confirm()
    second = run.write_plan(plan_of("a", 0, 20), replacing=first)

    if is_opened:
        advised = f"`kafka-drain republish {root} --abandon a --apply`"
        with pytest.raises(ConfigError, match="run a started with the previous plan") as refused:
            claim_opening(root, second, repeat=repeat)
        assert advised in str(refused.value)
    else:
        claim_opening(root, second, repeat=repeat).confirm()
        with pytest.raises(ConfigError, match="run a started to send"):
            older.confirm()


@pytest.mark.parametrize("is_planned_again", [False, True], ids=["another run", "planned again"])
def test_claim_opening_opened_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_planned_again: bool
) -> None:
    """A run that opens just when its claim would be withdrawn has opened: the later one doesn't."""
    root = UPath(tmp_path)
    run = RepublishRun(root, "a")
    plan = run.write_plan(plan_of("a"))
    earlier = claim_opening(root, plan, repeat=False)
    later = plan_of("b", 5, 12)
    says = r"^run a started to send records of a-0 with offsets 5 to 11 to copy: they would be"
    if is_planned_again:
        later = run.write_plan(plan_of("a", 0, 20), replacing=plan)
        says = (
            r"^an attempt of run a started with the previous plan\. Nothing was sent; end the run"
        )

    def withdraw(claim: Claim, by: str) -> bool:
        claim.confirm()
        return real(claim, by)

    real = Claim.withdraw
    with monkeypatch.context() as patch:
        patch.setattr(Claim, "withdraw", withdraw)
        with pytest.raises(ConfigError, match=says):
            claim_opening(root, later, repeat=False)

    assert earlier.state() is ClaimState.OPENED


def test_claim_opening_plan_gone(tmp_path: Path) -> None:
    """A claim of a run whose folder is gone claims nothing that is known, and blocks nobody."""
    root = UPath(tmp_path)
    RepublishRun(root, "a").write_plan(plan_of("a"))
    claim_opening(root, plan_of("a"), repeat=False)
    (RepublishRun(root, "a").folder / "plan.json").unlink()

    assert open_run(root, plan_of("b")) is None


@pytest.mark.parametrize("is_decided", [True, False])
def test_claim_opening_plan_damaged(tmp_path: Path, is_decided: bool) -> None:
    """A run that never opened and whose plan is damaged keeps no other out for ever."""
    root = UPath(tmp_path)
    RepublishRun(root, "a").write_plan(plan_of("a"))
    paused = claim_opening(root, plan_of("a"), repeat=False)
    if is_decided:
        paused.confirm()
    (RepublishRun(root, "a").folder / "plan.json").write_bytes(b"{}")
    if is_decided:
        # It may be about to send.
        with pytest.raises(ArchiveError, match=r"plan\.json was changed .* with --repeat"):
            open_run(root, plan_of("b"))
    assert open_run(root, plan_of("b"), repeat=is_decided) is None

    if not is_decided:
        with pytest.raises(ConfigError, match="run b started to send"):
            paused.confirm()


def test_claim_opening_claim_gone(tmp_path: Path) -> None:
    """A claim that was taken out from between others is named."""
    root = UPath(tmp_path)
    for number in range(3):
        assert open_run(root, plan_of(f"r{number}", number, number + 1)) is None
    folder = RepublishRun(root, openings.OPENINGS).folder
    write_document(folder / "00000003.json", {"run": "r2", "settled": 0})
    (folder / "00000002.json").unlink()

    with pytest.raises(ArchiveError, match=r"00000002\.json is gone; restore it from a copy"):
        claim_opening(root, plan_of("r3", 3, 4), repeat=False)
