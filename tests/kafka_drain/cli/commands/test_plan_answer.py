"""Whether a command carries out its plan, and what it says if it doesn't."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from kafka_drain.cli.commands.arguments import add_apply, add_dry_run
from kafka_drain.cli.commands.plan_answer import acts, answer_fields, answer_plan, say_dry_run


class Plan:
    """A plan of two lines, which counts how often it was carried out."""

    def __init__(self) -> None:
        self.carried_out = 0

    def lines(self) -> list[str]:
        return ["one", "two"]

    def to_dict(self) -> dict[str, Any]:
        return {"carried_out": self.carried_out}

    def carry_out(self) -> dict[str, Any]:
        self.carried_out += 1
        return {"records": 5}


def options_of(needs_apply: bool, *flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    (add_apply if needs_apply else add_dry_run)(parser)
    return parser.parse_args(flags)


@pytest.mark.parametrize(
    ("apply", "needs_apply", "expected"),
    [
        (None, True, False),
        (None, False, True),
        (True, True, True),
        (True, False, True),
        (False, True, False),
        (False, False, False),
    ],
)
def test_acts(apply: bool | None, needs_apply: bool, expected: bool) -> None:
    """What the user says counts; otherwise whether the command needs --apply."""
    options = argparse.Namespace(apply=apply, needs_apply=needs_apply)

    assert acts(options) is expected


@pytest.mark.parametrize(
    ("needs_apply", "flags", "hint"),
    [
        (True, [], "pass --apply"),
        (True, ["--dry-run"], "pass --apply"),
        (True, ["--apply"], ""),
        (False, [], ""),
        (False, ["--dry-run"], "omit --dry-run"),
    ],
)
def test_answer_plan(
    needs_apply: bool, flags: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan is shown, carried out once or not at all, and answered with the state after it."""
    plan = Plan()

    assert answer_plan(options_of(needs_apply, *flags), plan, plan.carry_out) == 0

    said = capsys.readouterr()
    ending = [f"dry run: nothing was changed; {hint} to carry it out"] if hint else []
    assert said.err.splitlines() == ["one", "two", *ending]
    assert plan.carried_out == (0 if hint else 1)
    assert [line.split() for line in said.out.splitlines()] == [
        ["carried", "out", str(plan.carried_out)],
        *([] if hint else [["records", "5"]]),
    ]


def test_answer_plan_without_result(capsys: pytest.CaptureFixture[str]) -> None:
    """What is carried out needn't add anything to the plan's fields."""
    assert answer_plan(options_of(False), Plan(), lambda: None) == 0
    assert capsys.readouterr().out.split() == ["carried", "out", "0"]


def test_answer_fields_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json, standard output is the document alone."""
    assert answer_fields(options_of(True, "--json"), {"records": 5}) == 0

    said = capsys.readouterr()
    assert said.out == '{\n  "records": 5\n}\n'
    assert said.err.startswith("dry run: nothing was changed;")


def test_say_dry_run_what(capsys: pytest.CaptureFixture[str]) -> None:
    """A command may say what it would have done."""
    say_dry_run(options_of(True), "send it")

    assert capsys.readouterr().err == "dry run: nothing was changed; pass --apply to send it\n"
