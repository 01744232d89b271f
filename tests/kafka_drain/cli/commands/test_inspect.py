"""`kafka-drain inspect`: each figure is shown, under its name."""

from __future__ import annotations

import json

import pytest

from kafka_drain.cli.main import main
from tests.core_calls import CoreCalls

SHOWN = {
    "archive": "/archives/t",
    "pipeline": "flights",
    "cluster_id": "id-1",
    "generations": [
        {
            "generation": 3,
            "opened_at": "noon",
            "reason": "rolled",
            "format": "orc",
            "batches": 1200,
            "files": 3400,
            "bytes": 5_600_000,
            "partitions": [
                {"topic": "t", "partition": 4, "start": 1000, "end": 3500, "offsets": 2500}
            ],
        }
    ],
    "windows": [
        {"window": "w1", "format": "avro", "records": 7800, "files": 9100, "bytes": 1_200_000}
    ],
}


def test_inspect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures are those of the archive that was named, as text and as JSON."""
    calls = CoreCalls(monkeypatch)
    calls.replace("kafka_drain.cli.commands.inspect.inspect_archive", SHOWN)

    assert main(["inspect", "/archives/t"]) == 0
    assert str(calls.given["inspect_archive"][0][0].root) == "/archives/t"
    said = " ".join(word for word in capsys.readouterr().out.split() if word not in "│┃")
    assert said.startswith("/archives/t: pipeline flights, Kafka cluster id-1")
    figures = "opened noon (rolled), 1,200 batches, 3,400 files, 5.6 MB"
    assert f"generation 3: orc, {figures}" in said
    assert "topic partition start end offsets" in said
    assert "t 4 1,000 3,500 2,500" in said
    assert "window w1: avro, 7,800 records, 9,100 files, 1.2 MB" in said

    assert main(["inspect", "/archives/t", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == SHOWN
