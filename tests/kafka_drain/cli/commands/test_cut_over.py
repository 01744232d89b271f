"""`kafka-drain cut-over`: without --apply, nothing is taken; with it, what is named is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.cli.commands import cut_over as command
from kafka_drain.cli.exit_codes import OK, USAGE
from kafka_drain.cli.main import main
from kafka_drain.config.cut_over import CutOver as Settings
from kafka_drain.cut_over.request import CutOverRequest
from kafka_drain.cut_over.steps import CutOverStep
from kafka_drain.offsets import TopicPartition
from tests.core_calls import noted_engines
from tests.kafka_drain.made_archive import MadeArchive, dense


@dataclass
class Taken:
    """What the command has done to a cut-over, of which a step has passed and one was refused."""

    does: list[object] = field(default_factory=list)
    given: Any = None
    engine: Any = None
    archive: Any = None

    def take(self, step: CutOverStep, engine: object) -> Any:
        self.does.append(step)
        self.engine = engine
        return SimpleNamespace(content=lambda: {"step": step.value})

    def go_back(self, *, apply: bool) -> Any:
        self.does.append(("back", apply))
        return SimpleNamespace(content=lambda: {"step": "back"}) if apply else None

    def history(self) -> list[Any]:
        step = {"finished_at": "noon", "records": 1234, "problems": []}
        return [
            SimpleNamespace(step="mirror", verdict="refused", **step | {"problems": ["lag"]}),
            SimpleNamespace(step="mirror", verdict="passed", **step),
            SimpleNamespace(
                step="producers_off", verdict="refused", **step | {"problems": ["a", "b"]}
            ),
        ]

    def made(self, archive: Any, pipeline: Any, source: Any, target: Any, *more: Any) -> Any:
        self.archive = archive, pipeline
        self.given = (source.config.bootstrap_servers, target.config.bootstrap_servers, *more)
        return SimpleNamespace(
            request=more[0],
            pipeline=pipeline,
            target=target,
            take=self.take,
            go_back=self.go_back,
            history=self.history,
        )


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    taken = Taken()
    monkeypatch.setattr(command, "CutOver", taken.made)
    return taken


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run the command; return its exit code, its answer, and what it said."""
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    made.seal({TopicPartition("flights", 0): dense(0, 10)})

    def run(*arguments: str) -> tuple[int, Any, str]:
        where = ("--bootstrap-servers", "old:9092", "--to-bootstrap", "new:9092")
        code = main(["cut-over", str(made.root), "--json", *where, *arguments])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else None, said.err

    return run


@pytest.mark.parametrize(
    ("arguments", "does", "is_hinted"),
    [
        ([], [], False),
        (["--apply"], [], False),
        (["--step", "producers-off"], [], True),
        (["--step", "producers_off", "--dry-run"], [], True),
        (["--step", "producers-off", "--apply"], [CutOverStep.PRODUCERS_OFF], False),
        (["--back"], [("back", False)], True),
        (["--back", "--apply"], [("back", True)], False),
    ],
)
def test_cut_over(
    arguments: list[str], does: list[object], is_hinted: bool, taken: Taken, run: Any
) -> None:
    """A step is taken only with --apply; the checklist shows the newest attempt of each."""
    code, told, said = run(*arguments)

    assert (code, taken.does) == (OK, does)
    assert ("dry run" in said) is is_hinted
    assert told["run_name"] == "cut-over"
    taken_now = [{"step": getattr(each, "value", "back")} for each in does]
    assert told["taken"] == (taken_now[0] if "--apply" in arguments and does else None)
    seen = {name: (step["state"], step["saw"]) for name, step in told["steps"].items()}
    assert seen["mirror"] == ("passed", "noon: 1,234 records sent")
    assert seen["producers_off"] == ("refused", "a; b")
    assert seen["hand_over"] == ("waiting", "")


def test_cut_over_engines(taken: Taken, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror sends to the target, with the archive's pipeline and the options' runner."""
    monkeypatch.setattr(command, "runner_of", lambda _: "the runner")
    monkeypatch.setattr(command, "signer_from", lambda _: "the signer")
    made = noted_engines(monkeypatch, f"{command.__name__}.Engines")
    run("--step", "mirror", "--apply")

    archive, pipeline = taken.archive
    [engines] = made
    root, target, of, folder, runner = engines.given
    assert (root, of, runner) == (str(archive.root), pipeline, "the runner")
    assert target.config.bootstrap_servers == "new:9092"
    assert taken.engine is engines
    # The folder is private, and is removed afterwards.
    assert not folder.exists()
    assert taken.given[-1] == "the signer"


def test_cut_over_table(
    taken: Taken, run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table has each step, its state, and what was seen."""
    where = ("--bootstrap-servers", "old:9092", "--to-bootstrap", "new:9092")
    assert main(["cut-over", str(tmp_path / "archive"), *where]) == OK

    rows = capsys.readouterr().out.splitlines()
    assert [row for row in rows if "mirror " in row and "passed" in row and "1,234 records" in row]
    assert [row for row in rows if "producers_off" in row and "refused" in row and "a; b" in row]
    assert [row for row in rows if "hand_over" in row and "waiting" in row]


def test_cut_over_request(taken: Taken, run: Any, tmp_path: Path) -> None:
    """What is given is the request; what isn't has the default of a pipeline's."""
    run()
    plain = CutOverRequest.of(Settings(kafka_conn_id="x"))
    assert taken.given[:4] == ("old:9092", "new:9092", plain, "terminal")

    options = tmp_path / "options.json"
    options.write_text('{"placement": "key"}')
    run(
        *("--run-name", "move", "--group", "g", "--group", "h", "--max-lag", "3"),
        *("--quiet-seconds", "5", "--mirror-options", str(options)),
    )
    mirror = {"placement": "key"}
    settings = Settings(
        kafka_conn_id="x",
        run_name="move",
        groups=["g", "h"],
        max_lag=3,
        quiet_seconds=5,
        mirror=mirror,
    )
    assert taken.given[2] == CutOverRequest.of(settings)


def test_cut_over_unknown_step(taken: Taken, run: Any) -> None:
    """A step that there isn't is refused with those that there are."""
    code, _, said = run("--step", "producers", "--apply")

    assert (code, taken.does) == (USAGE, [])
    assert "accepted: mirror, producers-off, last-drain" in said
