"""Errors that earlier validations found, and that none has found mended since.

A validation that looks less closely than an earlier one doesn't see all that was found: each
therefore looks again at what stands, as closely as it was looked at before, and what it can't look
at goes on standing. They are part of `overview.json`.

Opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from kafka_drain.findings import OF_BYTES, OF_KAFKA, OF_WITNESS, Finding, Reason, errors

#: Number of findings of a reason that are kept one by one.
NAMED = 200

#: The archive's folder of data keys.
KEYS = "keys"

_REASONS = {reason.value: reason for reason in Reason}


@dataclass(frozen=True, slots=True)
class Look:
    """How closely a validation looks at an archive.

    Attributes:
        whole: Whether at all generations and receipts; otherwise at those of the open generation.
        deep: Whether at all bytes of sealed files, and not only of those that are named.
        kafka: Whether Kafka is asked.
        witness: Whether the witness is.
        generation: The open generation; None without one.
    """

    whole: bool
    deep: bool
    kafka: bool
    witness: bool
    generation: int | None


@dataclass(frozen=True, slots=True)
class StandingFinding:
    """An error that stands.

    Attributes:
        where: The finding's subject, as it is shown.
        found_at: When it was found first, ISO 8601.
        generation: The generation that is enough to look at, while it is open; None for all.
        more: Number of further findings of the reason, which aren't named.
    """

    reason: Reason
    where: str
    detail: str
    found_at: str
    generation: int | None = None
    more: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> StandingFinding:
        """Read a row of `overview.json`, which may have more of a later release.

        Raises:
            KeyError: When only another release knows the reason.
        """
        known = {name: row[name] for name in cls.__slots__ if name in row}
        return cls(**{**known, "reason": _REASONS[row["reason"]]})

    def is_seen_by(self, look: Look) -> bool:
        """Return whether a validation that looks like this would find it again."""
        if self.reason in OF_KAFKA and not look.kafka:
            return False
        if self.reason in OF_WITNESS and not look.witness:
            return False
        if self.more and self.reason in OF_BYTES and not look.deep:
            return False
        return look.whole or self.generation == look.generation is not None

    def finding(self) -> Finding:
        """Return the finding of a validation that couldn't look at it."""
        more = f"; {self.more:,} more of the kind" if self.more else ""
        how = "Kafka wasn't asked" if self.reason in OF_KAFKA else "its content wasn't compared"
        how = "the witness wasn't compared" if self.reason in OF_WITNESS else how
        detail = f"{self.detail}{more}; found {self.found_at}, and not looked at since: {how}"
        return Finding(self.reason, self.where, detail)

    def to_dict(self) -> dict[str, Any]:
        """Return its row in `overview.json`."""
        return {name: getattr(self, name) for name in self.__slots__} | {"reason": str(self.reason)}


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands of an archive.

    Attributes:
        findings: The errors.
        is_known: Whether it could be read; otherwise anything may stand.
    """

    findings: Sequence[StandingFinding] = ()
    is_known: bool = True

    @classmethod
    def of(cls, overview: Mapping[str, Any] | None, pipeline: str) -> Standing:
        """Read what stands from an overview; None if no validation has written one."""
        if overview is None:
            return cls()
        if overview["pipeline"] != pipeline:
            return cls(is_known=False)
        try:
            rows = overview.get("standing")
            if rows is None:
                rows = _of_earlier_release(overview)
            return cls(tuple(map(StandingFinding.of, rows)))
        except KeyError:
            # A reason that only another release knows.
            return cls(is_known=False)

    def needs_whole(self, generation: int | None) -> bool:
        """Return whether everything must be looked at to see whether it still stands."""
        narrow = Look(False, True, True, True, generation)
        return not self.is_known or any(not one.is_seen_by(narrow) for one in self.findings)

    @property
    def subjects(self) -> frozenset[str]:
        """The files and receipts whose bytes must be read to see whether it still stands."""
        return frozenset(one.where for one in self.findings if one.reason in OF_BYTES)

    def unseen_by(self, look: Look, findings: Sequence[Finding] = ()) -> list[StandingFinding]:
        """Return what a validation that looked like this couldn't look at, and hasn't found again.

        Args:
            findings: What it found. Some is also found without Kafka, in another way; and records
                whose key is missing weren't compared.
        """
        again = {(finding.reason, finding.where) for finding in findings}
        return [
            one
            for one in self.findings
            if (one.more or (one.reason, one.where) not in again)
            and not (
                one.is_seen_by(look)
                and (one.reason not in OF_BYTES or (Reason.KEY_UNAVAILABLE, one.where) not in again)
            )
        ]

    def following(
        self, findings: Sequence[Finding], look: Look, now: datetime
    ) -> list[StandingFinding]:
        """Return what stands after a validation.

        Args:
            findings: What it found.
            look: How it looked.
            now: When it began.
        """
        found = [finding for finding in errors(findings) if not _is_of_lacked_key(finding)]
        is_narrow = look.generation is not None and not look.whole
        is_narrow &= all(_is_within(finding, look.generation or 0) for finding in found)
        generation = look.generation if is_narrow else None
        first = {(one.reason, one.where, one.detail): one.found_at for one in self.findings}
        at = now.isoformat(timespec="seconds")
        new = [
            StandingFinding(
                finding.reason,
                finding.where,
                finding.detail,
                first.get((finding.reason, finding.where, finding.detail), at),
                generation,
            )
            for finding in found
        ]
        return [*_shortened(new), *self.unseen_by(look, findings)]


def _is_of_lacked_key(finding: Finding) -> bool:
    """Return whether a validation lacked a key: that says nothing of the archive.

    A data key's document that is damaged does: nobody can read the records any more.
    """
    is_of_key = finding.reason is Reason.KEY_UNAVAILABLE
    return is_of_key and not finding.where.startswith(f"{KEYS}/")


def _is_within(finding: Finding, generation: int) -> bool:
    """Return whether a finding is about a generation's files, or about offsets."""
    folder = f"generations/{generation:04d}/"
    return not isinstance(finding.subject, str) or finding.subject.startswith(folder)


def _shortened(findings: Sequence[StandingFinding]) -> Iterator[StandingFinding]:
    """Yield the first findings of each reason, and one for the rest."""
    for _, of_reason in groupby(sorted(findings, key=lambda one: one.reason), lambda f: f.reason):
        each = list(of_reason)
        yield from each[:NAMED]
        if rest := each[NAMED:]:
            one = rest[0]
            yield StandingFinding(
                one.reason, one.where, one.detail, one.found_at, None, len(rest) - 1
            )


def _of_earlier_release(overview: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows for an overview that names no findings, only their number by reason."""
    return [
        {
            "reason": code,
            "where": overview["report"],
            "detail": "an earlier release found it",
            "found_at": overview["validated_at"],
            "more": number,
        }
        for code, number in overview["findings"].items()
        if overview["verdict"] != "complete" and _REASONS[code].severity == "error"
    ]
