"""`kafka-drain erase`: what its files are for, even if their names are empty."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from kafka_drain.cli.commands import erase
from kafka_drain.cli.exit_codes import USAGE
from kafka_drain.cli.main import main
from tests.kafka_drain.made_archive import MadeArchive
from tests.kafka_drain.maintenance.test_erase import cluster, left, lying, made, rewrite

__all__ = ["made"]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kafka with the archive's topic; Python rewrites the files in Spark's place."""
    here: Any = cluster()
    monkeypatch.setattr(erase, "cluster_from", lambda _: here)
    monkeypatch.setattr(erase, "runner_of", lambda _: rewrite)


@pytest.mark.usefixtures("kafka")
@pytest.mark.parametrize("flags", [["--keys", ""], ["--headers="], ["--keys=", "--headers", ""]])
@pytest.mark.parametrize("told", [["--apply"], ["--freeze"], []])
def test_erase_file_without_a_name(
    made: MadeArchive,
    flags: Sequence[str],
    told: Sequence[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A script whose variable is empty asks for some keys, not for all records of the topic."""
    asked = ["--request", "r", "--by", "b", "--topic", "flights"]

    with suppress(SystemExit):
        assert main(["erase", str(made.root), *asked, *flags, *told]) == USAGE

    assert lying(made.root) == left(but=frozenset())
    assert "is empty; give FILE, or leave the option out" in capsys.readouterr().err
