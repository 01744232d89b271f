"""The commands of a plan, as a shell reads them."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace

import pytest

from kafka_drain.kafka.cluster_state import ScramUser
from kafka_drain.recovery.commands import Commands

HOSTILE = "méta/ group #1 $(touch x) 'a' \"b\" `c`"
COMMANDS = Commands(f"/data/{HOSTILE}", "a:1,b:2", ("--kafka-config", "/my file"), "2026-01-01")
DRAIN = [f"/data/{HOSTILE}", "--kafka-config", "/my file"]


def as_read(command: str, **variables: str) -> list[str]:
    """Return the words of a command that a real shell reads."""
    tools = " ".join(command.split(" ", 1)[:1])
    shown = f'{tools}() {{ printf "%s\\0" "$@"; }}; {command}'
    ended = subprocess.run(
        ["bash", "-c", shown], capture_output=True, text=True, check=True, env=variables
    )
    return ended.stdout.split("\0")[:-1]


@pytest.mark.parametrize("group", ["billing", HOSTILE, "-x"])
def test_translate(group: str) -> None:
    """Group, archive, connection and time arrive as they are."""
    assert as_read(COMMANDS.translate(group, "restore-1")) == [
        *("translate-group", *DRAIN, "--run", "restore-1", f"--group={group}"),
        *("--from-archive", "--at", "2026-01-01", "--apply"),
    ]


def test_others() -> None:
    """So does everything else."""
    server = ["--bootstrap-server", "a:1,b:2"]
    assert as_read(COMMANDS.republish()) == [
        *("republish", *DRAIN, "--same-topics", "--run-name", "restore", "--apply")
    ]
    assert as_read(COMMANDS.apply_configs()) == [
        *("plan-recovery", *DRAIN, "--at", COMMANDS.at),
        *("--apply", "configs", "--accept-lower-safety"),
    ]
    assert as_read(COMMANDS.create_topic("t", 3)) == [
        *(*server, "--create", "--topic", "t", "--partitions", "3")
    ]
    assert as_read(COMMANDS.add_partitions("t", 3)) == [
        *(*server, "--alter", "--topic", "t", "--partitions", "3")
    ]
    assert as_read(COMMANDS.unset("t", "a.b")) == [
        *(*server, "--alter", "--entity-type", "topics", "--entity-name", "t"),
        *("--delete-config", "a.b"),
    ]
    assert as_read(COMMANDS.from_start(HOSTILE, "t")) == [
        *(*server, "--reset-offsets", f"--group={HOSTILE}", "--topic", "t"),
        *("--to-earliest", "--execute"),
    ]


def test_tools() -> None:
    """Each command begins with the tool that knows its flags."""
    user = ScramUser("u", "SCRAM-SHA-512", 4096)
    tools = {
        "kafka-drain": [
            COMMANDS.republish(),
            COMMANDS.apply_configs(),
            COMMANDS.translate("g", "r"),
        ],
        "kafka-topics.sh": [COMMANDS.create_topic("t", 3), COMMANDS.add_partitions("t", 3)],
        "kafka-configs.sh": [COMMANDS.unset("t", "a.b"), COMMANDS.add_user(user)],
        "kafka-consumer-groups.sh": [COMMANDS.from_start("g", "t")],
    }

    for tool, commands in tools.items():
        assert {shlex.split(command)[0] for command in commands} == {tool}


def test_republish_some() -> None:
    """Only the named topics are sent; a mirror goes on with its own, without naming any."""
    named = ["--same-topics", "--topic=a", "--topic=b", "--run-name", "r", "--apply"]
    assert shlex.split(COMMANDS.republish("r", topics=["a", "b"]))[5:] == named
    assert shlex.split(COMMANDS.republish("r", follows=True))[5:] == [
        *("--same-topics", "--follow", "--run-name", "r", "--apply")
    ]


def test_add_user() -> None:
    """A password comes from the shell, which refuses to go on without it."""
    command = COMMANDS.add_user(ScramUser(HOSTILE, "SCRAM-SHA-512", 4096))

    assert as_read(command, NEW_PASSWORD="my secret")[2:] == [
        *("--alter", "--entity-type", "users", "--entity-name", HOSTILE, "--add-config"),
        "SCRAM-SHA-512=[iterations=4096,password=my secret]",
    ]
    with pytest.raises(subprocess.CalledProcessError):
        as_read(command)


def test_state() -> None:
    """What runs keep elsewhere is looked for there, by each command that reads or writes it."""
    commands = replace(COMMANDS, at="", state="/my state")

    for command in (commands.republish(), commands.apply_configs(), commands.translate("g", "r")):
        words = as_read(command)
        assert words[1:6] == [*DRAIN, "--state", "/my state"]
        # Nor is a time named where the newest descriptions count.
        assert "--at" not in words


def test_secured() -> None:
    """Kafka's own tools need a file for a login, which the shell has to have."""
    command = replace(COMMANDS, is_secured=True).create_topic("t", 3)

    assert as_read(command, CLIENT_PROPERTIES="/my file")[-2:] == ["--command-config", "/my file"]
    with pytest.raises(subprocess.CalledProcessError):
        as_read(command)
