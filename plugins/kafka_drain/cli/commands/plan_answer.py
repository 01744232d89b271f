"""Show a plan, carry it out if the user says so, and print the answer."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafka_drain.cli.console import answer, print_fields, say, say_lines
from kafka_drain.cli.exit_codes import OK
from kafka_drain.output import Level, Line

if TYPE_CHECKING:
    from kafka_drain.kafka.cluster import KafkaCluster


class Plan(Protocol):
    """The plan of a command."""

    def lines(self) -> Sequence[str]:
        """Return the plan as lines of text for the user."""

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types."""


def acts(options: argparse.Namespace) -> bool:
    """Return whether to carry out the plan, and not only to show it."""
    return bool(not options.needs_apply if options.apply is None else options.apply)


def answer_plan(
    options: argparse.Namespace, plan: Plan, carry_out: Callable[[], Mapping[str, Any] | None]
) -> int:
    """Show a plan, carry it out if the user says so, print both and return the exit code.

    Args:
        options: The command's arguments.
        carry_out: Does what is planned; returns what to add to the plan's fields, if anything.
    """
    say_lines(plan.lines())
    result = carry_out() if acts(options) else None
    return answer_fields(options, plan.to_dict() | dict(result or {}))


def answer_fields(options: argparse.Namespace, document: Mapping[str, Any]) -> int:
    """Print the fields of a plan or of its result, and return the exit code.

    They name the Kafka cluster, if there is one.
    """
    cluster: KafkaCluster | None = getattr(options, "cluster", None)
    if cluster is not None:
        document = {**document, **cluster.named()}
    answer(options, document, print_fields(document))
    say_dry_run(options)
    return OK


def say_dry_run(options: argparse.Namespace, what: str = "carry it out") -> None:
    """Print the flag that carries out a plan, if it was only shown.

    Args:
        options: The command's arguments.
        what: The effect of the flag, as a verb.
    """
    if not acts(options):
        how = "pass --apply" if options.needs_apply else "omit --dry-run"
        say(Line(f"dry run: nothing was changed; {how} to {what}", Level.WARNING))
