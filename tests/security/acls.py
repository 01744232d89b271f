"""Rules of who may do what, made and taken away, and in force when the call returns."""

from __future__ import annotations

import re
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.faults.injection import wait_for

__all__ = ["Acls", "Rule", "documented"]

#: Resource type, name (with `*` at its end: a prefix), operation.
Rule = tuple[str, str, str]

_DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"


def documented(job: str, topic: str) -> list[Rule]:
    """Return the ACLs that the documentation lists for a job with a topic."""
    rules = []
    for line in _DOCUMENT.read_text(encoding="utf-8").partition("## ACLs")[2].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if job not in cells[0].split(", ") or "creates topics" in cells[0]:
            continue
        _, kind, name, operation, _ = cells
        literal = re.fullmatch(r"`(.*)`( \(prefixed\))?", name)
        named = f"{literal[1]}{'*' if literal[2] else ''}" if literal else topic
        rules.append((_constant(kind), named, _constant(operation)))
    return rules


def _constant(word: str) -> str:
    """Return a word of kafka-acls.sh as the client's constant, such as `DESCRIBE_CONFIGS`."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", word).upper()


class Acls:
    """The ACLs of a cluster."""

    def __init__(self, admin: AdminClient) -> None:
        self.admin = admin

    def allow(self, user: str, kind: str, name: str, operation: str) -> None:
        """Allow a user one operation on one resource, or on all whose name begins so."""
        binding = self._binding(user, kind, name, operation)
        for future in self.admin.create_acls([binding]).values():
            future.result(30)
        wait_for(lambda: binding in self._of(user), "the ACL")

    def only(self, user: str, *rules: Rule) -> None:
        """Let a user do this, and nothing else."""
        for future in self.admin.delete_acls([self._filter(user)]).values():
            future.result(30)
        wait_for(lambda: not self._of(user), "no ACL")
        for rule in rules:
            self.allow(user, *rule)

    def _of(self, user: str) -> list[AclBinding]:
        found: list[AclBinding] = self.admin.describe_acls(self._filter(user)).result(30)
        return found

    def _binding(self, user: str, kind: str, name: str, operation: str) -> AclBinding:
        is_prefix = name.endswith("*") and name != "*"
        return AclBinding(
            ResourceType[kind],
            name.rstrip("*") if is_prefix else name,
            ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )

    def _filter(self, user: str) -> AclBindingFilter:
        return AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{user}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
