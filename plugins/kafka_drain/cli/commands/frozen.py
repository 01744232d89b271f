"""`--freeze` and `--plan`: freeze what a dry run shows, and carry out exactly that."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from kafka_drain.archive.frozen_plan import LIFETIME, FrozenPlan, PlanDecision, lifetime
from kafka_drain.cli.commands.plan_answer import Plan, acts, answer_fields
from kafka_drain.cli.console import say, say_lines
from kafka_drain.errors import ConfigError


def add_frozen(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command whose plan can be frozen."""
    hours = LIFETIME / timedelta(hours=1)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--freeze",
        metavar="HOURS",
        nargs="?",
        type=float,
        const=hours,
        help="write the plan that is shown to the archive: within HOURS "
        f"({hours:g}), --plan carries out exactly this one",
    )
    how.add_argument(
        "--plan",
        dest="plan_id",
        metavar="ID",
        help="the plan that --freeze or a dry run in Airflow has written, in place of what it was "
        "made of; without --apply, only check that nothing has changed since",
    )


def frozen_for(options: argparse.Namespace) -> timedelta | None:
    """Return the lifetime of the plan to be frozen; None if none is to be frozen.

    Raises:
        ConfigError: When the plan is also to be carried out, or the time isn't positive.
    """
    if options.freeze is None:
        return None
    if acts(options):
        raise ConfigError("--freeze only shows and writes the plan; omit --apply, and use --plan")
    return lifetime(options.freeze)


def refuse_beside_plan(given: Iterable[str]) -> None:
    """Refuse arguments that say what to plan beside a plan that was made already.

    Raises:
        ConfigError: Names them.
    """
    if named := sorted(given):
        raise ConfigError(
            f"--plan carries out a plan that was made already; omit {', '.join(named)}"
        )


def refuse_plan_beside(options: argparse.Namespace, flag: str, given: Iterable[str] = ()) -> None:
    """Refuse a plan, and what would be planned, beside a flag that ends something instead.

    Args:
        options: The command's arguments.
        flag: The flag.
        given: The flags that were given of what to plan.

    Raises:
        ConfigError: Names them.
    """
    plans = {"--plan": options.plan_id, "--freeze": options.freeze}
    named = sorted({*given, *(name for name, value in plans.items() if value is not None)})
    if named:
        raise ConfigError(f"{flag} ends what was begun, and plans nothing; omit {', '.join(named)}")


def answer_frozen(options: argparse.Namespace, plan: Plan, frozen: FrozenPlan) -> int:
    """Show a plan that was frozen now, and how to carry it out; return the exit code."""
    say_lines(plan.lines())
    return answer_fields(options, plan.to_dict() | answer_of(options, frozen))


def answer_approved(
    options: argparse.Namespace,
    plan: Plan,
    frozen: FrozenPlan,
    decision: PlanDecision,
    carry_out: Callable[[], Mapping[str, Any]],
) -> int:
    """Show the rest of a frozen plan, carry it out if the user says so; return the exit code.

    Args:
        options: The command's arguments.
        plan: The rest of the plan.
        decision: RUN, RESUME or DO_NOTHING.
        carry_out: Carries it out; returns what to answer instead of the plan's fields.
    """
    say_lines(plan.lines())
    answer_of(options, frozen)
    if decision is PlanDecision.DO_NOTHING:
        say(f"plan {frozen.id} has been carried out already; nothing was changed")
    elif acts(options):
        return answer_fields(options, carry_out())
    return answer_fields(options, plan.to_dict())


def answer_of(options: argparse.Namespace, frozen: FrozenPlan) -> dict[str, Any]:
    """Print the command that carries out a frozen plan; return its fields for the answer."""
    say_lines(frozen.lines())
    if options.plan_id is None:
        words = ["kafka-drain", options.name, options.archive, *_reach(options)]
        say(f"approve it with `{shlex.join([*words, '--plan', frozen.id, '--apply'])}`")
    return {"plan_id": frozen.id, "expires_at": frozen.expires_at}


#: Flags that a plan is made and carried out with, and what isn't in it, by argument; and what each
#: is by default.
_REACH: dict[str, tuple[str, object]] = {
    "state": ("--state", None),
    "kafka_config": ("--kafka-config", None),
    "bootstrap_servers": ("--bootstrap-servers", None),
    "master": ("--master", "local[*]"),
    "deploy_mode": ("--deploy-mode", "client"),
    "spark_conf": ("--spark-conf", None),
    "source_options": ("--source-option", None),
    "processes": ("--processes", None),
    "pipeline": ("--pipeline", None),
    "evidence_key": ("--evidence-key", None),
    "hash_key_file": ("--hash-key-file", None),
    "replace_changed": ("--replace-changed", None),
}


def _reach(options: argparse.Namespace) -> list[str]:
    """Return the options with which the plan was made and is found again."""
    words = []
    for name, (flag, usual) in _REACH.items():
        value = getattr(options, name, usual)
        if value is not None and value != usual:
            values = value if isinstance(value, list) else [value]
            words += [word for each in values for word in (flag, str(each))]
    return words
