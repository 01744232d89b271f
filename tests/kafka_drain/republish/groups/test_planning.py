"""What a plan of a group's offsets needs to know of a republish, and of the runs beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import ArchiveError, ConfigError
from kafka_drain.republish.groups.planning import find_run, plan_group
from kafka_drain.republish.planning.runs import RepublishRun, drill_run, run_key
from kafka_drain.republish.verifying.offset_map import started_map
from tests.kafka_drain.republish.planning.test_previous_runs import note, plan_of

#: Kafka isn't asked before the runs are known.
NOBODY: Any = None


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("lost", ["chosen", "other"])
def test_plan_group_plan_lost(lost: str, is_done: bool, tmp_path: Path) -> None:
    """Records of a run whose plan is missing could be skipped: refused, naming the plan."""
    root = UPath(tmp_path)
    note(root, plan_of("chosen", 0, 10), is_done=True)
    note(root, plan_of("other", 10, 20), is_done=is_done)
    run = RepublishRun(root, "chosen")
    (root / "republish" / lost / "plan.json").unlink()

    with pytest.raises(ArchiveError, match=rf"{lost}/plan\.json is missing"):
        plan_group(
            Archive(root),
            run,
            started_map(plan_of("chosen", 0, 10)),
            *(NOBODY, NOBODY, NOBODY),
            group="g",
            to_group="g",
        )


def test_find_run_beside_drills(tmp_path: Path) -> None:
    """Without a name, the only run is found; those of drills don't count, as targets are gone."""
    archive = Archive(UPath(tmp_path))
    drills = [run_key(drill_run(f"2026010{day}T000000Z-0000000{day}")) for day in (1, 2)]
    for key in drills:
        RepublishRun(archive.root, key).write_offset_map(b"{}")
    with pytest.raises(ConfigError, match="runs with an offset map, newest last: none"):
        find_run(archive, None)
    RepublishRun(archive.root, "drill-of-mine").write_offset_map(b"{}")

    assert find_run(archive, None).key == "drill-of-mine"
    assert find_run(archive, drills[0]).key == drills[0]
