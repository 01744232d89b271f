"""Commands that run in parallel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from tests.faults.injection import wait_for

ROOT = Path(__file__).parents[2]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "scripts.side_by_side", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        # The process that starts the tests may ignore it, as with `nohup`; children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def test_side_by_side_runs_at_once(tmp_path: Path) -> None:
    """Commands run in parallel (here each waits for the other), and lines have their names."""
    waits = "while [ ! -e {0} ]; do sleep 0.05; done; touch {1}; echo there"
    one, two = tmp_path / "one", tmp_path / "two"

    out, _ = start(
        f"a=touch {two}; " + waits.format(one, tmp_path / "x"),
        f"bb=touch {one}; " + waits.format(two, tmp_path / "y"),
    ).communicate(timeout=60)

    assert sorted(out.splitlines()[:-1]) == [
        "a  | passed",
        "a  | there",
        "bb | passed",
        "bb | there",
    ]


def test_side_by_side_at_once(tmp_path: Path) -> None:
    """With a limit, a command starts when a previous one has ended, even if that one failed."""
    first, second = tmp_path / "first", tmp_path / "second"

    process = start(
        "--at-once",
        "1",
        f"a=touch {first}; [ ! -e {second} ] && echo alone; exit 3",
        f"b=touch {second}; [ -e {first} ] && echo after",
    )
    out, _ = process.communicate(timeout=60)

    assert process.returncode == 1
    assert out.splitlines()[:-1] == [
        "a | alone",
        "b | after",
        "a | failed, exit code 3",
        "b | passed",
    ]


def test_side_by_side_interrupted_starts_no_more(tmp_path: Path) -> None:
    """A command that is waiting at an interrupt never starts."""
    first, second = tmp_path / "first", tmp_path / "second"
    process = start("--at-once", "1", f"a=touch {first}; exec sleep 300", f"b=touch {second}")
    wait_for(first.exists, "the first command's start")

    process.send_signal(signal.SIGINT)

    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not second.exists()


def test_side_by_side_one_fails() -> None:
    """A failing command doesn't stop the others, and its exit code is printed."""
    process = start("a=exit 3", "b=true && echo whole")
    out, _ = process.communicate(timeout=60)

    assert process.returncode == 1
    assert "a | failed, exit code 3" in out
    assert "b | whole" in out


def test_side_by_side_interrupted(tmp_path: Path) -> None:
    """An interrupt stops the commands, and everything they started."""
    pid = tmp_path / "pid"
    process = start(f"a=echo $$ > {pid}.tmp; mv {pid}.tmp {pid}; exec sleep 300")
    wait_for(pid.exists, "the command's start")

    process.send_signal(signal.SIGINT)

    process.communicate(timeout=60)
    assert process.returncode != 0
    wait_for(lambda: not _lives(int(pid.read_text())), "the end of what the command has started")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie has exited, though its parent hasn't waited for it yet.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_side_by_side_repeats_failures() -> None:
    """What pytest said of a failed test stands beside the result, not thousands of lines above."""
    out, _ = start(
        "--at-once",
        "1",
        "a=echo 'E   assert 1 == 2'; echo 'FAILED tests/test_x.py::test_x'; echo more; exit 1",
        "b=echo 'FAILED, but passed when it was tried again'",
        "c=echo; echo",
    ).communicate(timeout=60)

    assert out.splitlines()[6:10] == [
        "a | E   assert 1 == 2",
        "a | FAILED tests/test_x.py::test_x",
        "a | failed, exit code 1",
        "b | passed",
    ]
