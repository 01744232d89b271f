"""`kafka-drain files`: the paths that readers take, one a line."""

from __future__ import annotations

import json

import pytest

from kafka_drain.cli.main import main
from tests.core_calls import CoreCalls

FOUND = [{"path": "/archives/t/[b]/1.orc", "records": 3}, {"path": "/archives/t/2", "records": 1}]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_files(
    is_sealed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only --sealed leaves out what no receipt proves; a path is printed as it is."""
    calls = CoreCalls(monkeypatch)
    calls.replace("kafka_drain.cli.commands.files.committed_files", FOUND)
    flags = ["--sealed"] * is_sealed

    assert main(["files", "/archives/t", *flags]) == 0
    (archive,), named = calls.given["committed_files"]
    assert (str(archive.root), named) == ("/archives/t", {"include_unsealed": not is_sealed})
    assert capsys.readouterr().out.splitlines() == ["/archives/t/[b]/1.orc", "/archives/t/2"]

    assert main(["files", "/archives/t", "--json", *flags]) == 0
    assert json.loads(capsys.readouterr().out) == FOUND
