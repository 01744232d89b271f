"""What was read of a file crosses from an executor to the driver as JSON, and is the same."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.findings import Finding, Reason
from kafka_drain.offsets import OffsetRange, TopicPartition

numbers = st.integers(0, 1 << 62)
times = st.none() | numbers
ranges = st.tuples(numbers, numbers).map(lambda pair: OffsetRange(min(pair), max(pair)))
contents = st.builds(
    FileOffsets,
    tp=st.builds(TopicPartition, st.text(max_size=5), numbers),
    ranges=st.lists(ranges, max_size=3).map(tuple),
    records=numbers,
    duplicates=st.lists(numbers, max_size=3).map(tuple),
    ascending=st.booleans(),
    first_timestamp=times,
    last_timestamp=times,
)
files = st.builds(
    CommittedFile,
    path=st.text(max_size=9),
    bytes=numbers,
    sha256=st.text("0123456789abcdef", max_size=64),
    contents=st.lists(contents, max_size=3).map(tuple),
    batch=times,
)


@given(file=files)
def test_committed_file_as_json(file: CommittedFile) -> None:
    """Every field comes back, of the same type."""
    assert CommittedFile.from_dict(json.loads(json.dumps(file.to_dict()))) == file


def test_finding_as_json() -> None:
    """The code comes back as a reason, with its meaning."""
    finding = Finding(Reason.FILE_CORRUPT, "generations/0001/data/a", "no footer")

    assert Finding.from_dict(json.loads(json.dumps(finding.to_dict()))) == finding
