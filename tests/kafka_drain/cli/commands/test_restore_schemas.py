"""The commands that keep schemas and restore them, as users call them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.cli.exit_codes import FAILED, OK, USAGE
from kafka_drain.cli.main import main
from tests.fake_registry import LOGIN, FakeRegistry, fake_registry
from tests.kafka_drain.made_archive import MadeArchive
from tests.kafka_drain.schemas.test_capture import made, registry

__all__ = ["made", "registry"]


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Run a command, and return its exit code and what it answers."""

    def run(*arguments: object) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main([*map(str, arguments), "--json"])
        written = capsys.readouterr().out
        return code, json.loads(written) if written else {}

    return run


@pytest.fixture
def captured(
    answer: Callable[..., Any], made: MadeArchive, registry: FakeRegistry, tmp_path: Path
) -> MadeArchive:
    """An archive that keeps the schemas of its records."""
    config = tmp_path / "registry.json"
    config.write_text(json.dumps(registry.settings))
    answer("capture-schemas", made.root, "--registry-config", config)
    return made


def test_schemas_there_and_back(
    answer: Callable[..., Any], made: MadeArchive, registry: FakeRegistry, tmp_path: Path
) -> None:
    """Capture with a login from a file; a dry run registers nothing, and --apply everything."""
    config = tmp_path / "registry.json"
    config.write_text(json.dumps(registry.settings))

    code, found = answer("capture-schemas", made.root, "--registry-config", config, "--dry-run")
    assert (code, found["new"]) == (OK, 5)
    assert not (made.root / "registry.json").exists()
    code, found = answer("capture-schemas", made.root, "--registry-config", config)

    assert code == OK
    assert (found["subjects"], found["versions"], found["missing_ids"]) == (3, 5, [])
    with fake_registry() as target:
        arguments = ("restore-schemas", made.root, "--registry", target.url, "--map", "dr")
        code, found = answer(*arguments)
        assert (code, found["to_register"], found["refused"]) == (OK, 4, 0)
        assert target._subjects == {}
        code, found = answer(*arguments, "--apply")
        assert (code, found["mapped"], found["other_ids"]) == (OK, 4, 4)
        code, found = answer(*arguments)
        assert (code, found["to_register"]) == (OK, 0)


def test_capture_schemas_registry_down(
    answer: Callable[..., Any], made: MadeArchive, registry: FakeRegistry, tmp_path: Path
) -> None:
    """At the terminal, what couldn't be captured is a failure, and the login isn't shown."""
    registry.fails = 401
    config = tmp_path / "registry.json"
    config.write_text(json.dumps(registry.settings))

    code, found = answer("capture-schemas", made.root, "--registry-config", config)

    assert code == FAILED
    assert found["missing_ids"] == [7, 9]
    assert LOGIN not in json.dumps(found)


@pytest.mark.parametrize(
    ("statuses", "code"),
    [({"GET /config": 403, "GET /mode": 403}, OK), ({"GET /subjects/t-key/": 403}, FAILED)],
)
def test_capture_schemas_in_part(
    statuses: dict[str, int],
    code: int,
    answer: Callable[..., Any],
    captured: MadeArchive,
    registry: FakeRegistry,
    tmp_path: Path,
) -> None:
    """A named subject is kept too; settings that a login may not read are no failure."""
    registry.statuses = statuses
    given = ("--registry-config", tmp_path / "registry.json", "--subject", "unused")

    found_code, found = answer("capture-schemas", captured.root, *given)

    assert (found_code, found["new"], found["subjects"]) == (code, 1, 4)


def test_restore_schemas_keep(answer: Callable[..., Any], captured: MadeArchive) -> None:
    """Ids are kept if asked for; the answer names map, ids and registry."""
    with fake_registry() as target:
        given = ("--registry", target.url, "--map", "dr", "--ids", "keep", "--apply")
        code, found = answer("restore-schemas", captured.root, *given)

    assert (code, found["mapped"], found["other_ids"]) == (OK, 4, 0)
    assert (found["registry"], found["map"], found["ids"]) == (target.url, "dr", "keep")


def test_capture_schemas_reseal(answer: Callable[..., Any], captured: MadeArchive) -> None:
    """Without a registry, what is kept can be accepted; a dry run only names what is accepted."""
    path = captured.root / "registry.json"
    path.write_text(path.read_text().replace("int32 n", "int64 n"))
    arguments = ("capture-schemas", captured.root, "--reseal")

    for more, accepted in (("--dry-run", 1), ("--no-dry-run", 1), ("--no-dry-run", 0)):
        given = [more] if more == "--dry-run" else []
        code, found = answer(*arguments, *given)
        assert (code, found["accepted"]) == (OK, accepted)


def test_restore_schemas_refused(answer: Callable[..., Any], captured: MadeArchive) -> None:
    """What can't be restored is a failure of the plan too."""
    with fake_registry() as target:
        target.register("city", 1, {"type": "string"})
        code, found = answer("restore-schemas", captured.root, "--registry", target.url)

    assert (code, found["refused"]) == (FAILED, 1)


def test_restore_schemas_settings_refused(
    answer: Callable[..., Any], captured: MadeArchive
) -> None:
    """A setting that the target doesn't take is a failure and in the answer; the map is there."""
    with fake_registry() as target:
        target.statuses = {"PUT /mode": 403}
        arguments = ("restore-schemas", captured.root, "--registry", target.url, "--map", "dr")
        assert answer(*arguments)[1]["new_subjects"] == 3
        code, found = answer(*arguments, "--apply")

    assert (code, found["mapped"]) == (FAILED, 4)
    [warning] = found["warnings"]
    assert "city didn't get its mode READONLY" in warning
    assert (captured.root / "schema-maps" / "dr.json").is_file()


@pytest.mark.parametrize("command", ["capture-schemas", "restore-schemas"])
def test_no_registry(answer: Callable[..., Any], made: MadeArchive, command: str) -> None:
    """Without a registry, the commands say how to name one."""
    assert answer(command, made.root)[0] == USAGE


def test_check_decoding_no_run(answer: Callable[..., Any], made: MadeArchive) -> None:
    """A run that isn't there, or hasn't finished, is refused."""
    found = answer(
        *("check-decoding", made.root, "--run", "none", "--registry", "http://127.0.0.1:9"),
        *("--bootstrap-servers", "127.0.0.1:9"),
    )

    assert found[0] == USAGE
