"""`kafka-drain check-decoding`: what it compares, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_drain.cli.main import main
from tests.core_calls import CoreCalls
from tests.kafka_drain.fake_cluster import FakeCluster

HERE = "kafka_drain.cli.commands.check_decoding"
KAFKA = FakeCluster({})


@pytest.mark.parametrize(("is_exact", "code"), [(True, 0), (False, 1)])
def test_check_decoding(
    is_exact: bool,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The named run is compared with the target's registry; a difference isn't a success."""
    config = tmp_path / "registry.json"
    config.write_text('{"url": "http://source:1", "basic.auth.user.info": "me:hunter2"}')
    found = SimpleNamespace(
        is_exact=is_exact, lines=lambda: ["1 record differs"], content=lambda: {"different": 1}
    )
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.cluster_from", KAFKA)
    calls.replace(f"{HERE}.check_run", found)
    registry = ["--registry", "http://target:1", "--registry-config", str(config)]

    found_code = main(["check-decoding", str(tmp_path), "--run", "move", *registry, "--json"])

    assert found_code == code
    archive, name, cluster, asked = calls.given["check_run"][0]
    assert (str(archive.root), name, cluster) == (str(tmp_path), "move", KAFKA)
    assert asked.settings["url"] == "http://target:1"
    assert asked.settings["basic.auth.user.info"] == "me:hunter2"
    said = capsys.readouterr()
    assert json.loads(said.out) == {"run": "move", "different": 1}
    assert "1 record differs" in said.err
