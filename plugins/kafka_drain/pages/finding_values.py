"""The subjects of a validation's findings, as the commands of their remedies take them.

Opens nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka_drain.findings import Reason
from kafka_drain.gaps import GapReason

#: The most values that a command is given; once they are dealt with, others follow.
MOST = 50

#: A placeholder in a remedy, with the option that it belongs to.
_PLACEHOLDER = re.compile(r"(--[a-z-]+) (?:TOPIC:PARTITION:START-END|GENERATION:BATCH|TOPIC\b)")
#: Folder of a segment's finding, and the batches that it names.
_GENERATION = re.compile(r"generations/0*(\d+)/")
_BATCH = re.compile(r"up to batch (\d+)")
_NOTE = re.compile(r"/(\d+)\.json$")
#: A hole between two generations, as its finding describes it.
_HOLE = re.compile(r"resumes (?P<tp>\S+) after \[(?P<start>\d+), (?P<end>\d+)\)")


def values_of(report: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the values for the placeholder of each remedy that has one, by the reason's code.

    Args:
        report: The result of a validation's `Report.to_dict`.
    """
    findings: dict[str, list[Mapping[str, str]]] = {}
    for finding in report["findings"]:
        findings.setdefault(finding["reason"], []).append(finding)
    gaps = [gap for gap in report.get("gaps", ()) if not gap.get("acknowledged")]
    expired = [gap for gap in gaps if gap["reason"] == GapReason.EXPIRED]
    unexplained = [gap for gap in gaps if gap["reason"] == GapReason.UNEXPLAINED]
    holes = findings.get(Reason.SEGMENT_HOLE.value, [])
    stalled = (f["where"].rpartition("-")[0] for f in findings.get(Reason.STALLED.value, []))
    unknown = sorted(_batches(findings.get(Reason.CONTENT_UNKNOWN.value, [])))
    # The first of each: these commands take one.
    single = {
        Reason.CONTENT_UNKNOWN.value: [f"{number}:{batch}" for number, batch in unknown],
        Reason.STALLED.value: [topic for topic in stalled if topic],
    }
    return {
        Reason.OFFSET_MISSING.value: _ranges(expired),
        Reason.OFFSET_UNEXPLAINED.value: _ranges(unexplained),
        Reason.SEGMENT_HOLE.value: _ranges(_in_holes([*expired, *unexplained], holes)),
        **{code: found[:1] for code, found in single.items() if found},
    }


def _ranges(gaps: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{gap['topic']}:{gap['partition']}:{gap['start']}-{gap['end']}" for gap in gaps][:MOST]


def _in_holes(
    gaps: Sequence[Mapping[str, Any]], findings: Sequence[Mapping[str, str]]
) -> list[Mapping[str, Any]]:
    holes = [found for each in findings if (found := _HOLE.search(each["detail"]))]
    return [
        gap
        for gap in gaps
        if any(
            f"{gap['topic']}-{gap['partition']}" == hole["tp"]
            and gap["start"] < int(hole["end"])
            and int(hole["start"]) < gap["end"]
            for hole in holes
        )
    ]


def _batches(findings: Sequence[Mapping[str, str]]) -> Iterator[tuple[int, int]]:
    """Yield generation and batch of segments that findings are about."""
    for finding in findings:
        generation = _GENERATION.search(finding["where"])
        batch = _NOTE.search(finding["where"]) or _BATCH.search(finding["detail"])
        if generation and batch:
            yield int(generation[1]), int(batch[1])


def filled(remedy: str, values: Sequence[str] | None) -> str:
    """Return a remedy with values for its placeholder; without the sentence that needs one if none.

    Args:
        values: The values; None if they aren't known.
    """
    if values is None:
        return remedy
    if not values:
        parts = [part for part in remedy.split("; ") if not _PLACEHOLDER.search(part)]
        return "; ".join(parts) or remedy
    words = [shlex.quote(value) for value in values if "`" not in value]
    return _PLACEHOLDER.sub(lambda found: " ".join(f"{found[1]} {w}" for w in words), remedy)
