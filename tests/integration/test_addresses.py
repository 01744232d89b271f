"""Every command, given every mistake in a Kafka address: the same sentence, and in which time."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from kafka_drain.cli.main import COMMANDS, main, parser
from kafka_drain.proof.validation import validate_archive
from tests.addresses import Mistake, mistakes_of_brokers, mistakes_without_broker
from tests.fake_registry import fake_registry
from tests.integration.command_line import kafka_drain, start_kafka_drain
from tests.kafka_drain.cluster_states import CLUSTER
from tests.kafka_drain.golden import golden_cluster, golden_copy
from tests.security.secured_kafka import SecuredKafka, secured_kafka

pytestmark = pytest.mark.integration

#: Options that take the address of a Kafka, and those that take its other settings.
WHERE = {
    "--bootstrap-servers": "--kafka-config",
    "--source-bootstrap-servers": "--source-kafka-config",
    "--to-bootstrap": "--to-kafka-config",
}

#: Time until a mistake is said that can be known; what may pass is looked for every four seconds.
KNOWN_SECONDS = 10.0
#: Time until a command ends that waits for 20 s for a broker that may come back.
WAITED_SECONDS = 30.0

AT_ONCE = 12
#: Held to start a process, and to ask whether it has ended: each looks at all of them.
_PROCESSES = Lock()


@dataclass(frozen=True)
class Row:
    """A command that asks a Kafka.

    Attributes:
        command: Its name.
        arguments: What it is given, but for the address that is wrong.
        option: The option that gets the wrong address.
        says: What its last line begins with; … stands for anything.
        keeps: A folder of the archive where it keeps also what failed.
        way: How it is told the address: by `option`, by `environment`, or by a setting in a file.
    """

    command: str
    arguments: str
    option: str = "--bootstrap-servers"
    says: str = ""
    keeps: str = "-"
    way: str = "option"

    @property
    def name(self) -> str:
        """What tells it from the others."""
        named = re.sub(r"\{archive\}|\{(\w+)\}|(--\S+)-offset\S*", r"\1\2", self.arguments)
        other = "" if self.option == "--bootstrap-servers" else f" [{self.option}]"
        return " ".join(f"{self.command} {named}".split()) + other


ERASE = "{archive} --request r --by me --keys {keys}"
BACKFILL = "{archive} --start 2013-01-01 --end 2013-01-02"
DECODE = "{archive} --run {run} --registry {registry}"
GROUP = "{archive} --run {run} --group g"
TO, BACK = "--to-bootstrap {good}", "--bootstrap-servers {good}"
ROWS = (
    Row("drain", "{new} --topic flights"),
    Row("drain", "{archive}"),
    Row("drain", "{new} --topic-pattern f.* --dry-run"),
    Row("validate", "{archive}"),
    Row("validate", "{archive} --deep --dry-run"),
    Row("validate", "{archive} --evidence-key {key} --witness kafka:seen"),
    Row("repair", "{archive}"),
    Row("repair", "{archive} --apply"),
    Row("roll", "{archive}"),
    Row("roll", "{archive} --dry-run"),
    Row("backfill", BACKFILL),
    Row("backfill", f"{BACKFILL} --force --apply"),
    Row("reprocess", "{archive} --from-batch 13"),
    Row("reprocess", "{archive} --from-batch 13 --apply"),
    Row("reprocess", "{archive} --from-batch 13 --freeze"),
    # It notes which files it has read again.
    Row("maintain", "{archive} --max-generation-days 1 --apply", keeps="maintenance"),
    Row("erase", ERASE),
    Row("erase", f"{ERASE} --apply"),
    Row("erase", f"{ERASE} --freeze"),
    Row("republish", "{archive} --same-topics"),
    Row("republish", "{archive} --target-topic t --engine spark --apply"),
    Row("republish", "{archive} --same-topics --freeze"),
    Row("plan-recovery", "{archive}"),
    Row("plan-recovery", "{archive} --apply"),
    Row("check-decoding", DECODE),
    Row("translate-group", GROUP),
    Row("translate-group", f"{GROUP} --apply {BACK}", "--source-bootstrap-servers"),
    Row("translate-group", f"{GROUP} --undo --apply"),
    Row("cut-over", f"{{archive}} --step mirror --apply {TO}"),
    Row("cut-over", f"{{archive}} --step mirror --apply {BACK}", "--to-bootstrap"),
    Row("cut-over", f"{{archive}} --back {TO}"),
    Row("drill", "{archive}", "--to-bootstrap", "drill …: plan failed: ", "drills"),
)


@dataclass(frozen=True)
class Made:
    """What commands are given.

    Attributes:
        kafka: A broker with listeners of all kinds.
        archive: A sealed archive of another cluster, with a republish to this one.
        values: What stands for names in braces.
        cluster_id: The broker's cluster.
        java: A JAVA_HOME whose Java notes that it was started for more than to say its version.
        mistakes: All mistakes.
    """

    kafka: SecuredKafka
    archive: Path
    values: dict[str, str]
    cluster_id: str
    java: Path
    mistakes: list[Mistake]

    def mistake(self, name: str) -> Mistake:
        """Return a mistake."""
        return next(each for each in self.mistakes if each.name == name)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("addresses")
    keys = folder / "keys"
    keys.write_text("k\n")
    key = folder / "key.pem"
    assert main(["evidence-key", str(key)]) == 0
    with (
        secured_kafka(folder, "user", "correct") as kafka,
        fake_registry() as registry,
        mistakes_without_broker() as mistakes,
    ):
        archive, run = _archive(folder, kafka)
        values = {
            "good": kafka.kafka.bootstrap_servers,
            "keys": str(keys),
            "key": str(key),
            "run": run,
            "registry": registry.url,
        }
        all_of = [*mistakes, *mistakes_of_brokers(kafka)]
        id_ = kafka.admin.list_topics(timeout=30).cluster_id
        yield Made(kafka, archive, values, id_, _java(folder / "java"), all_of)


def _archive(folder: Path, kafka: SecuredKafka) -> tuple[Path, str]:
    """Return a sealed archive of a cluster that is gone, and the run that sent it to this one."""
    archive, source = golden_copy(folder / "archive"), golden_cluster()
    described = replace(CLUSTER, cluster_id=source.id)
    assert validate_archive(archive, source, describe=lambda _: described).complete
    kafka.admin.create_topics([NewTopic("flights", 2)])["flights"].result(30)
    sent = ("--same-topics", "--engine", "worker", "--apply")
    to = ("--bootstrap-servers", kafka.kafka.bootstrap_servers)
    ended = kafka_drain("republish", archive.root, *to, *sent)
    assert ended.code == 0, ended.err
    (written,) = Path(str(archive.root)).glob("republish/*/offset-map.json")
    return Path(str(archive.root)), written.parent.name


def _java(home: Path) -> Path:
    """Return a JAVA_HOME that says its version, and else leaves a mark."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        f"""#!/bin/sh
[ "$*" != -version ] || {{ echo 'openjdk version "17.0.1"' >&2; exit 0; }}
echo "$*" >> {home / "started"}
exit 1
"""
    )
    command.chmod(0o755)
    return home


@dataclass(frozen=True)
class Cell:
    """What became of a command with a mistake.

    Attributes:
        row: The command.
        mistake: The mistake.
        code: Its exit code.
        out: Its answer.
        err: What it said.
        said: Seconds until it said the sentence; None if it didn't.
        ended: Seconds until it ended.
        changed: What it changed in the archive.
    """

    row: Row
    mistake: Mistake
    code: int
    out: str
    err: str
    said: float | None
    ended: float
    changed: list[str]

    def wrong(self) -> list[str]:
        """Return what is wrong."""
        mistake, row = self.mistake, self.row
        begins = row.says if row.says and mistake.is_asked else f"kafka-drain {row.command}: "
        lines = self.err.splitlines()
        told = any(mistake.is_said_in(line, begins) for line in lines)
        bound = KNOWN_SECONDS if mistake.lasts else WAITED_SECONDS
        checks = {
            f"exit code {self.code}": self.code == (1 if mistake.is_asked else 2),
            "another sentence": told,
            f"said after {self.said} s": self.said is not None and self.said < KNOWN_SECONDS,
            # Its clients may still be asking for the name of an unknown host.
            f"ended after {self.ended} s": self.ended < bound,
            "a traceback": "Traceback" not in self.out + self.err,
            "told after its end": not told or not lines[-1].startswith("waiting"),
            f"changed {self.changed}": not self.changed,
            # Validation tells what the files alone prove.
            "no verdict on the files": row.command != "validate"
            or not mistake.is_asked
            or "84 records for 84 offsets" in self.out,
        }
        return [what for what, is_right in checks.items() if not is_right]


def run(made: Made, row: Row, mistake: Mistake, folder: Path, **settings: Any) -> Cell:
    """Give a command a mistake."""
    folder.mkdir()
    archive = Path(shutil.copytree(made.archive, folder / "archive"))
    values = {**made.values, "archive": str(archive), "new": str(folder / "new")}
    given = [each.format(**values) for each in row.arguments.split()]
    environment = {"JAVA_HOME": str(made.java)}
    settings = {**mistake.settings, **settings}
    if row.way == "option":
        # In one word: the name of a host may begin like an option.
        given.append(f"{row.option}={mistake.address}")
    elif row.way == "environment":
        environment["KAFKA_BOOTSTRAP_SERVERS"] = mistake.address
    else:
        settings[row.way] = mistake.address
    if settings:
        config = folder / "kafka.json"
        config.write_text(json.dumps(settings))
        given += [WHERE[row.option], str(config)]
    before = contents(archive)
    began, said = time.monotonic(), None
    with _PROCESSES:
        process = start_kafka_drain(folder, row.command, *given, environment=environment)
    err = folder / "err"
    is_alive = True
    while is_alive:
        wait([process.sentinel], 0.05)
        # Before its words are read, of which the last come at its end.
        with _PROCESSES:
            is_alive = process.is_alive()
        lines = err.read_text().splitlines() if err.exists() else []
        if said is None and any(map(mistake.is_said_in, lines)):
            said = round(time.monotonic() - began, 1)
        if time.monotonic() - began > 120:
            process.kill()
    ended = round(time.monotonic() - began, 1)
    after = contents(archive)
    changed = sorted(
        path
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path) and not path.startswith(f"{row.keeps}/")
    )
    changed += ["new"] * (folder / "new").exists()
    code = process.exitcode
    assert code is not None
    cell = Cell(
        row, mistake, code, (folder / "out").read_text(), err.read_text(), said, ended, changed
    )
    if not cell.wrong():
        shutil.rmtree(folder)
    return cell


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def run_all(
    made: Made, pairs: Sequence[tuple[Row, Mistake]], folder: Path, **settings: Any
) -> list[Cell]:
    """Give commands mistakes, a few at a time."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        running = [
            threads.submit(run, made, row, mistake, folder / str(number), **settings)
            for number, (row, mistake) in enumerate(pairs)
        ]
        return [each.result() for each in running]


def check(made: Made, cells: Sequence[Cell]) -> None:
    """Require that nothing is wrong, and that no command started Java."""
    wrong = [
        f"{cell.row.name} with {cell.mistake.name}: {'; '.join(found)}\n{cell.err}"
        for cell in cells
        if (found := cell.wrong())
    ]
    assert not wrong, "\n".join(wrong)
    assert not (made.java / "started").exists()


def test_addresses_all_commands_known() -> None:
    """Every option of every command that takes an address is in the table."""
    chosen = next(
        action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    options = {
        (name, option): action.metavar
        for name, command in chosen.choices.items()
        for action in command._actions
        for option in action.option_strings
    }
    takes = {each for each, metavar in options.items() if metavar == "HOST:PORT"}
    settings = {
        each for each in options if re.search("kafka|bootstrap", each[1]) and each not in takes
    }

    assert COMMANDS.keys() == chosen.choices.keys()
    assert {(row.command, row.option) for row in ROWS} == takes
    assert {(command, WHERE[option]) for command, option in takes} == settings


def test_addresses_sample(made: Made, tmp_path: Path) -> None:
    """Each command says one of the mistakes as expected, and one of them says each."""
    unknown, row = made.mistake("unknown host"), next(r for r in ROWS if r.command == "roll")
    firsts = {(row.command, row.option): row for row in reversed(ROWS)}
    pairs = [(row, mistake) for mistake in made.mistakes]
    pairs += [(each, unknown) for each in firsts.values()]

    cells = run_all(made, pairs, tmp_path, **{"socket.timeout.ms": 6000})

    check(made, cells)


def test_addresses_each_way(made: Made, tmp_path: Path) -> None:
    """However a command is told an address, it says the same of it."""
    row = next(row for row in ROWS if row.command == "republish")
    ways = ("environment", "bootstrap.servers", "metadata.broker.list")
    names = ("kafka:x", "not Kafka")
    pairs = [(replace(row, way=way), made.mistake(name)) for way in ways for name in names]

    check(made, run_all(made, pairs, tmp_path))


def test_addresses_one_of_two_is_good(made: Made, tmp_path: Path) -> None:
    """A wrong address beside a good one is in nobody's way."""
    row = Row("drain", "{new} --topic flights --dry-run")
    bad = [mistake for mistake in made.mistakes if mistake.is_asked and not mistake.settings]

    cells = run_all(made, [(row, beside_good(made, each)) for each in bad], tmp_path)

    assert [(cell.code, cell.said, cell.changed) for cell in cells] == [(0, None, [])] * len(bad)
    for cell in cells:
        assert f"Kafka: cluster {made.cluster_id} at {cell.mistake.address}" in cell.err
        assert cell.ended < KNOWN_SECONDS


def beside_good(made: Made, mistake: Mistake) -> Mistake:
    """Return a mistake in the first of two addresses; what is said of it must not be said."""
    both = f"{mistake.address},{made.values['good']}"
    return replace(mistake, address=both, sentence="no response…")


@pytest.mark.soak
def test_addresses_one_of_two_is_good_everywhere(made: Made, tmp_path: Path) -> None:
    """Every command gets to the cluster by the good one, whatever it then says."""
    rows = [row for row in ROWS if row.command != "drain" or "--dry-run" in row.arguments]
    pairs = [(row, beside_good(made, made.mistake("refused"))) for row in rows]

    cells = run_all(made, pairs, tmp_path)

    for cell in cells:
        assert "Traceback" not in cell.out + cell.err
        assert cell.said is None, f"{cell.row.name}: {cell.err}"
        assert made.cluster_id in cell.out + cell.err, f"{cell.row.name}: {cell.err}"


@pytest.mark.soak
def test_addresses(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command says each mistake as expected."""
    pairs = [(row, mistake) for mistake in made.mistakes for row in ROWS]

    cells = run_all(made, pairs, tmp_path)

    with capsys.disabled():
        sys.stdout.write(table(cells))
    check(made, cells)


def table(cells: Sequence[Cell]) -> str:
    """Return for each command and mistake when it was said, when it ended, and what is wrong."""
    names = list(dict.fromkeys(cell.mistake.name for cell in cells))
    rows = [["command", *names], ["---"] * (len(names) + 1)]
    for row in dict.fromkeys(cell.row for cell in cells):
        rows.append([row.name])
        for cell in (cell for cell in cells if cell.row is row):
            later = cell.said is None or cell.ended - cell.said >= 1
            shown = f"{cell.said}" + (f" to {cell.ended}" if later else "")
            rows[-1].append("; ".join([shown, *cell.wrong()]))
    return "\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)
