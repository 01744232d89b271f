"""Choose what to do first about an archive, of all that could be done. Opens nothing."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_drain.archive.drill_status import DrillState
from kafka_drain.archive.readiness import Readiness
from kafka_drain.findings import Reason
from kafka_drain.look import Judged
from kafka_drain.pages.commands import Reach, pasteable
from kafka_drain.pages.remedies import Remedy


def next_step(judged: Judged, found: Sequence[Remedy], standing: str, reach: Reach) -> str:
    """Return what to do first about an archive; empty for nothing.

    Args:
        judged: Whether it could be restored.
        found: What the last validation has found.
        standing: The remedy for its status; empty if that needs none.
        reach: Addresses for the commands.
    """
    if errors := [one for one in found if one.is_error]:
        return errors[0].what_to_do
    if judged.refused:
        return pasteable(
            "`kafka-drain validate` says what is missing or damaged, and `kafka-drain repair` what "
            "mends it; don't drain until then",
            reach,
        )
    if standing:
        return standing
    if judged.drills and judged.drills.state in (DrillState.FAILED, DrillState.TOO_OLD):
        return "Mend what the drill says, and trigger the DAG that drills"
    if judged.pipeline is None or judged.state is Readiness.READY:
        return ""
    contents = [one for one in found if one.code == Reason.CONTENT_UNKNOWN.value]
    if contents and len(judged.why) == 1:
        return contents[0].what_to_do
    return pasteable("Trigger a run, or run `kafka-drain validate`: it proves what is open", reach)
