"""The engine of a plan: which one sends it, with how many processes, and what verifying finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.errors import DeliveryError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.engines import select
from kafka_drain.republish.engines.select import SHARD_RECORDS, Engines
from kafka_drain.republish.engines.worker import LANES, RECORDS_PER_PROCESS
from kafka_drain.republish.engines.worker_main import VerifyJob
from kafka_drain.republish.verifying.matching import PartitionMatch
from tests.kafka_drain.republish.planning.test_plan import PLAN
from tests.kafka_drain.republish.sending.test_shard_sender import job as send_job

GIVEN: Any = {name: object() for name in ("cluster", "pipeline", "runner")}
FOLDER = Path("/private")


class Used:
    """Takes the place of the engines.

    Attributes:
        calls: What was asked of them, in order.
        result: What Spark's job answers.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[Any] = []
        self.result: dict[str, Any] = {"records": 1}
        self.answers: list[dict[str, Any]] = []
        used = self

        class Worker:
            def run(
                self,
                groups: Any,
                processes: int,
                tick: Callable[[], None],
                answered: Callable[[Any, dict[str, Any]], None] | None = None,
            ) -> None:
                used.calls.append(("worker", groups, processes))
                for [job], answer in zip(groups, used.answers, strict=False):
                    tick()
                    assert answered is not None
                    answered(job, answer)
                tick()

            def stop(self) -> None:
                used.calls.append("stop")

            def close(self) -> None:
                used.calls.append("close")

        class Job:
            def run(self, runner: object) -> dict[str, Any]:
                used.calls.append(("run", runner))
                return used.result

        def prepared(name: str) -> Callable[..., Job]:
            def prepare(*given: Any) -> Job:
                used.calls.append((name, given))
                return Job()

            return prepare

        patch.setattr(select, "Worker", Worker)
        patch.setattr(select, "prepare_send", prepared("send"))
        patch.setattr(select, "prepare_sink", prepared("sink"))

    @contextmanager
    def engines(self, processes: int | None = None) -> Iterator[Engines]:
        """The engines, which end with the block."""
        with Engines(
            "/root", GIVEN["cluster"], GIVEN["pipeline"], FOLDER, GIVEN["runner"], processes
        ) as engines:
            yield engines
        assert self.calls.pop() == "close"


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Used:
    return Used(monkeypatch)


JOBS = [[send_job(records_per_second=600.0, bytes_per_second=6e6)] for _ in range(3)]


@pytest.mark.parametrize("result", [{"records": 0}, {}])
@pytest.mark.parametrize(
    ("delivery", "engine", "name"),
    [
        ("at_least_once", "spark", "sink"),
        ("at_least_once", "worker", "sink"),
        ("exactly_once", "spark", "send"),
    ],
)
def test_engines_spark(
    used: Used, delivery: str, engine: str, name: str, result: dict[str, Any]
) -> None:
    """Spark sends as the plan says; a job that ends without saying what it sent has failed."""
    plan = replace(PLAN, delivery=delivery, engine=engine)
    used.result = result

    with used.engines() as engines:
        if result:
            engines(plan, JOBS, lambda: None)
        else:
            with pytest.raises(DeliveryError, match="ended before all shards were sent"):
                engines(plan, JOBS, lambda: None)

    first, last = (plan, JOBS) if name == "send" else (plan, "/root"), GIVEN["runner"]
    given = (*first, GIVEN["pipeline"], GIVEN["cluster"], FOLDER)
    assert used.calls == [(name, given), ("run", last)]


@pytest.mark.parametrize(
    ("records", "most", "processes"),
    [
        (0, 4, 1),
        (2 * RECORDS_PER_PROCESS - 2 * SHARD_RECORDS - 1, 4, 1),
        (2 * RECORDS_PER_PROCESS - 2 * SHARD_RECORDS, 4, 2),
        (9 * RECORDS_PER_PROCESS, 4, 3),
        (9 * RECORDS_PER_PROCESS, 2, 2),
        (9 * RECORDS_PER_PROCESS, 1, 1),
    ],
)
def test_engines_worker(used: Used, records: int, most: int, processes: int) -> None:
    """Processes that pay are used, up to those allowed; what sends at once shares the limits."""
    one, two = PLAN.shards
    rest = replace(one, files=()), replace(two, files=(replace(two.files[0], records=records),))
    plan = replace(PLAN, shards=rest)
    assert plan.records == records
    ticks: list[int] = []

    with used.engines(most) as engines:
        engines(plan, JOBS, lambda: ticks.append(1))

    [(name, groups, found)] = used.calls
    writers = min(3, processes * LANES)
    assert (name, found, ticks) == ("worker", processes, [1])
    assert groups == [
        [replace(job, records_per_second=600 / writers, bytes_per_second=6e6 / writers)]
        for [job] in JOBS
    ]


def test_engines_verify(used: Used, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition gets what was found in it, and the last line says how much was read."""
    tps = [TopicPartition("copy", number) for number in range(3)]
    jobs = [VerifyJob("/root", "/root", "k", part, {}) for part in (tuple(tps[:2]), (tps[2],))]
    found = [PartitionMatch(10**number, 1, 2, 3, 4, 5, 6, "f", {}) for number in range(3)]
    said: list[str] = []
    monkeypatch.setattr(select, "say", said.append)
    used.answers = [
        {"matches": [found[0].to_dict(), found[1].to_dict()]},
        {"matches": [found[2].to_dict()]},
    ]

    with used.engines() as engines:
        assert engines.verify(PLAN, jobs) == dict(zip(tps, found, strict=True))

    assert used.calls == [("worker", [[job] for job in jobs], 1)]
    assert [line.partition(" of")[0] for line in said] == ["verify p: 111"]


@pytest.mark.parametrize("most", [1, 2])
def test_engines_verify_processes(used: Used, most: int) -> None:
    """Verifying takes no more processes than sending may."""
    one, two = PLAN.shards
    large = replace(two.files[0], records=9 * RECORDS_PER_PROCESS)
    plan = replace(PLAN, shards=(one, replace(two, files=(large,))))
    jobs = [VerifyJob("/root", "/root", "k", (TopicPartition("c", n),), {}) for n in range(3)]

    with used.engines(most) as engines:
        engines.verify(plan, jobs)

    assert used.calls == [("worker", [[job] for job in jobs], most)]


def test_engines_stop(used: Used) -> None:
    """What this machine sends can be stopped."""
    with used.engines() as engines:
        engines.stop()
        assert used.calls == ["stop"]
