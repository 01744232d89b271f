"""`kafka-drain translate-group`: where the group's offsets come from, in one way only."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.cli.commands import translate_group
from kafka_drain.cli.main import main
from kafka_drain.errors import ConfigError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.consumer_groups import Committed
from kafka_drain.offsets import TopicPartition
from tests.core_calls import CoreCalls
from tests.kafka_drain.republish.groups.test_planning import Moved

HERE = "kafka_drain.cli.commands.translate_group"
A0, COPY, COPY1 = TopicPartition("a", 0), TopicPartition("copy", 0), TopicPartition("copy", 1)


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Moved:
    """An archive whose run has sent to another cluster, and a group in the source."""
    moved = Moved(tmp_path, monkeypatch)
    monkeypatch.setattr(translate_group, "cluster_from", lambda _: moved.target)
    monkeypatch.setattr(translate_group, "_source_cluster", lambda _: moved.source)
    monkeypatch.setattr(translate_group, "ConsumerGroups", lambda _: moved.groups["away"])
    monkeypatch.setattr(translate_group, "find_run", lambda *_: moved.run)
    monkeypatch.setattr(translate_group, "read_map", lambda _: moved.offset_map)
    return moved


def translate(moved: Moved, *flags: str) -> int:
    """Run the command; return its exit code."""
    return main(["translate-group", str(moved.made.root), "--group=g", *flags])


def test_translate_group(moved: Moved, capsys: pytest.CaptureFixture[str]) -> None:
    """Offsets are committed with --apply only, and put back by --undo --apply."""
    groups = moved.groups["away"]

    assert translate(moved) == 0
    assert groups.offsets == {}
    assert "dry run: nothing was changed" in capsys.readouterr().err
    assert translate(moved, "--apply") == 0
    assert groups.offsets["g"][COPY] == Committed(0)
    assert translate(moved, "--undo") == 0
    assert groups.offsets["g"][COPY] == Committed(0)
    assert translate(moved, "--undo", "--apply") == 0
    assert groups.offsets == {}
    assert moved.groups["home"].offsets["g"][A0] == Committed(14, "time")


@pytest.mark.parametrize("flags", [[], ["--apply"], ["--undo"], ["--undo", "--apply"]])
def test_translate_group_other_cluster(
    moved: Moved, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Offsets of the run's cluster are neither committed nor put back in another one."""
    moved.target.id = "elsewhere"
    moved.groups["away"].offsets["g"] = {COPY: Committed(3)}

    assert translate(moved, *flags) == 2

    assert "is cluster elsewhere, expected cluster away" in capsys.readouterr().err
    assert moved.groups["away"].offsets["g"] == {COPY: Committed(3)}


def test_translate_group_to_other_group(moved: Moved, capsys: pytest.CaptureFixture[str]) -> None:
    """The other group gets the offsets, and is the one whose previous ones come back."""
    groups = moved.groups["away"]

    assert translate(moved, "--to-group=h", "--apply", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (groups.offsets.keys(), told["result"]) == ({"h"}, "applied")
    assert Path(told["record"]).is_file()

    assert translate(moved, "--to-group=h", "--undo", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["to_group"], told["result"], told["run"]) == ("h", "planned", "now")
    assert translate(moved, "--undo", "--apply") != 0
    assert groups.offsets.keys() == {"h"}
    assert translate(moved, "--to-group=h", "--undo", "--apply") == 0
    assert groups.offsets == {}


def test_translate_group_given(moved: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is of the run that was named, and of the offsets' place that was named."""
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.find_run", moved.run)
    calls.replace(f"{HERE}.archived_offsets", "the archived")
    calls.replace(f"{HERE}.plan_group", ConfigError("planned"))

    translate(moved, "--run=now", "--from-archive", "--at=2026-01-31T13:00Z", "--to-group=h")

    assert calls.given["find_run"][0][1] == "now"
    (root, group, at), _ = calls.given["archived_offsets"]
    assert (root, group, at.isoformat()) == (moved.made.root, "g", "2026-01-31T13:00:00+00:00")
    named = calls.named("plan_group")
    assert named == {
        "group": "g",
        "to_group": "h",
        "source": moved.source,
        "offsets_file": "",
        "archived": "the archived",
        "apply": False,
    }

    translate(moved, "--from-archive", "--apply")
    assert calls.given["archived_offsets"][0][2] is None
    assert calls.named("plan_group")["apply"]
    translate(moved, "--offsets-file=o.csv")
    assert calls.named("plan_group")["offsets_file"] == "o.csv"
    assert calls.named("plan_group")["archived"] is None


def test_translate_group_tables(moved: Moved, capsys: pytest.CaptureFixture[str]) -> None:
    """Each partition is shown with what the group had, and with what it has then."""
    moved.groups["home"].offsets["g"][A0] = Committed(1014)
    moved.groups["away"].offsets["g"] = {COPY: Committed(1003)}

    def rows(printed: str) -> list[list[str]]:
        return [line.replace("│", " ").split() for line in printed.splitlines()]

    translate(moved, "--apply")
    shown = capsys.readouterr().out
    assert ["a", "0", "1,014", "copy", "0", "0", "1,003"] in [row[:7] for row in rows(shown)]
    for title in ("source", "target", "committed", "offset", "now", "note"):
        assert title in shown
    translate(moved, "--undo")
    shown = capsys.readouterr().out
    assert ["copy", "0", "0", "1,003"] in rows(shown)
    # A dry run shows what the group would have then.
    assert "then" in shown


def test_translate_group_undo_answer(moved: Moved, capsys: pytest.CaptureFixture[str]) -> None:
    """An undo answers which offsets come back, and names its record."""
    moved.groups["away"].offsets["g"] = {COPY: Committed(1003), COPY1: Committed(8)}
    translate(moved, "--apply", "--json")
    told = json.loads(capsys.readouterr().out)
    assert [row["offset"] for row in told["rows"]] == [0, 0]
    assert (told["result"], told["cluster_id"]) == ("applied", "away")

    for flags, result in (([], "planned"), (["--apply"], "undone")):
        assert translate(moved, "--undo", "--json", *flags) == 0
        printed = capsys.readouterr()
        assert ("dry run" in printed.err) is (result == "planned")
        answered = json.loads(printed.out)
        assert (answered["result"], answered["cluster_id"]) == (result, "away")
        assert answered["put_back"] == [
            {"topic": "copy", "partition": 0, "offset": 1003},
            {"topic": "copy", "partition": 1, "offset": 8},
        ]
        assert (answered["left"], Path(answered["record"]).is_file()) == ([], True)


@pytest.mark.parametrize(
    ("protocol", "login"),
    [("PLAINTEXT", ""), ("SASL_SSL", ' --command-config "${CLIENT_PROPERTIES:?}"')],
)
def test_translate_group_undone_in_part(
    protocol: str, login: str, moved: Moved, capsys: pytest.CaptureFixture[str]
) -> None:
    """An undo that leaves an offset behind shows it, says how it is deleted, and exits 1."""
    groups: Any = moved.groups["away"]
    moved.groups["home"].offsets["g"][A0] = Committed(14)
    groups.offsets["g"] = {TopicPartition("other", 0): Committed(4), COPY1: Committed(8)}
    settings = {"bootstrap.servers": "fake:9092", "security.protocol": protocol}
    groups.admin = SimpleNamespace(config=KafkaConfig(settings))
    translate(moved, "--apply")
    capsys.readouterr()

    assert translate(moved, "--undo") == 0
    rows = [row.replace("│", " ").split() for row in capsys.readouterr().out.splitlines()]
    assert ["copy", "0", "0", "0"] in rows
    assert ["copy", "1", "0", "8"] in rows
    assert translate(moved, "--undo", "--apply", "--json") == 1
    answered, said = capsys.readouterr()
    told = json.loads(answered)
    assert told["put_back"] == [{"topic": "copy", "partition": 1, "offset": 8}]
    assert told["left"] == [{"topic": "copy", "partition": 0}]
    assert f"--group g --delete-offsets --topic copy:0{login}\n" in said


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--at", "2026-01-01"], "give --from-archive too"),
        (["--at", "2026-01-01", "--offsets-file", "o.csv"], "give --from-archive too"),
        (["--source-kafka-config", "k.json", "--from-archive"], "--source-kafka-config and --from"),
        (["--source-kafka-config", "k.json", "--offsets-file", "o.csv"], "and --offsets-file both"),
        (["--to-group", ""], None),
        (["--group="], "the name of a consumer group"),
    ],
)
def test_translate_group_refused(
    moved: Moved, flags: list[str], says: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """What would be ignored is refused."""
    given = flags if flags == ["--group="] else ["--group=g", *flags]

    code = main(["translate-group", str(moved.made.root), *given])

    assert code == (0 if says is None else 2)
    assert (says or "") in capsys.readouterr().err
