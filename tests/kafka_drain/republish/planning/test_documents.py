"""Documents of a republish: typed, and byte for byte those that earlier releases wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.republish.groups.group_records import GroupRecords
from kafka_drain.republish.planning.binding import Binding
from kafka_drain.republish.planning.documents import (
    ClaimJson,
    DecisionJson,
    GroupRecordJson,
    OpenedJson,
    ReceiptJson,
    ThroughJson,
    parse,
    parse_sealed,
)
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.verifying.offset_map import OffsetMap
from kafka_drain.storage.json_files import write_document
from kafka_drain.storage.sealed_json import SealError, seal
from tests.kafka_drain.republish.planning.test_plan import PLAN

#: What release 0.1 wrote.
RUNS = Path(__file__).parents[3] / "data" / "archive_0_1" / "republish"


def without_hash(document: Any) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != "sha256"}


@pytest.mark.parametrize("path", sorted(RUNS.glob("*/plan.json")), ids=lambda p: p.parent.name)
def test_plan_of_0_1(path: Path) -> None:
    """A plan is written again as it was."""
    content = path.read_bytes()

    assert RepublishPlan.parse(content).to_bytes() == content


@pytest.mark.parametrize("path", sorted(RUNS.glob("*/receipt.json")), ids=lambda p: p.parent.name)
def test_receipt_of_0_1(path: Path) -> None:
    """All that a receipt says is read."""
    content = path.read_bytes()
    receipt = parse_sealed(ReceiptJson, content)

    assert receipt == json.loads(json.dumps(receipt)) | {"sent": receipt["sent"]}
    assert seal(without_hash(receipt)) == content
    if receipt["through"] is not None:
        bound = receipt["through"]["bound"]
        assert Binding.from_dict(bound).to_dict() == bound


@pytest.mark.parametrize(
    "path", sorted(RUNS.glob("*/offset-map.json")), ids=lambda p: p.parent.name
)
def test_offset_map_of_0_1(path: Path) -> None:
    """An offset map is written again as it was."""
    content = path.read_bytes()

    assert OffsetMap.parse(content).to_bytes() == content


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        (ClaimJson, sorted(RUNS.glob("openings/????????.json"))),
        (DecisionJson, sorted(RUNS.glob("openings/*.decided.json"))),
        (OpenedJson, sorted(RUNS.glob("*/opened.json"))),
    ],
    ids=["claim", "decision", "opened"],
)
def test_note_of_0_1(tmp_path: Path, kind: type[Any], paths: list[Path]) -> None:
    """A claim, the decision about it, and an opening are written again as they were."""
    assert paths
    for path in paths:
        write_document(UPath(tmp_path / "again.json"), parse(kind, path.read_bytes()))
        assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_plan_bytes() -> None:
    """The bytes of a plan with everything in it, as release 0.2 writes them, have this hash."""
    assert (
        RepublishPlan.parse(PLAN.to_bytes()).sha256
        == "03fe926c6a4b651336b56dca6af3a7fbf74821aaf2ea3c3e91070047d23d9459"
    )


GROUP_RECORD = """{
  "format_version": 1,
  "run": "run-0",
  "cluster_id": "c",
  "from_group": "readers",
  "group": "readers/2",
  "group_existed": true,
  "written_at": "2026-01-01T00:00:00.000000+00:00",
  "sources": [
    {
      "topic": "t",
      "partition": 0,
      "offset": 5
    }
  ],
  "offsets": [
    {
      "topic": "copy",
      "partition": 0,
      "before": 3,
      "metadata_before": "m",
      "after": 7
    },
    {
      "topic": "copy",
      "partition": 1,
      "before": null,
      "metadata_before": null,
      "after": 8
    }
  ]
}
"""


def test_group_record_bytes(tmp_path: Path) -> None:
    """A record of an apply, as release 0.2 writes it, is written again as it was."""
    folder = UPath(tmp_path / "groups")
    folder.mkdir()
    (folder / "readers%2F2-20260101T000000000000Z.json").write_text(GROUP_RECORD)

    [record] = GroupRecords(UPath(tmp_path), "readers/2").all()
    write_document(folder / "again.json", dict(record.to_dict()))

    assert (folder / "again.json").read_text() == GROUP_RECORD


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "^isn't JSON"),
        (b"[]", "^holds '\\[\\]', expected a JSON object$"),
        (b"{}", "^has no run, settled$"),
        (b'{"run": "a", "settled": "1"}', "^settled is 1; expected a valid integer$"),
        (b'{"run": 1, "settled": 1}', "^run is 1; expected a valid string$"),
        (b'{"run": "a", "settled": true}', "^settled is True; expected a valid integer$"),
    ],
)
def test_parse_refused(content: bytes, says: str) -> None:
    """What isn't as it was written is named; no type is taken for another."""
    with pytest.raises(ValueError, match=says):
        parse(ClaimJson, content)


def test_parse_unknown_key() -> None:
    """Keys of a later release are left aside."""
    assert parse(ClaimJson, b'{"run": "a", "more": 7, "settled": 1}') == {"run": "a", "settled": 1}
    assert parse(ThroughJson, b'{"generations": {}, "windows": []}').get("bound") is None


@pytest.mark.parametrize("version", ["0", "3", "null", '"1"'])
def test_parse_version_first(version: str) -> None:
    """Another version is named, whatever else it has; one that isn't there is another."""
    with pytest.raises(ValueError, match=r"^has format version .+, expected 1$"):
        parse(GroupRecordJson, b'{"format_version": %s}' % version.encode())
    with pytest.raises(ValueError, match=r"^has format version None, expected 1$"):
        parse(GroupRecordJson, b"{}")
    with pytest.raises(ValueError, match=r"^has no run, "):
        parse(GroupRecordJson, b'{"format_version": 1}')


def test_parse_sealed_changed() -> None:
    """Bytes that were changed are refused before anything is read of them."""
    with pytest.raises(SealError):
        parse_sealed(ReceiptJson, b"{}")
