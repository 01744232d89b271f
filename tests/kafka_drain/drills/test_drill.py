"""A whole drill whose cluster goes away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_drain.clock import utc_now
from kafka_drain.drills.drill import DrillRequest, run_drill
from kafka_drain.errors import KafkaUnavailableError
from tests.kafka_drain.fake_cluster import FakeCluster
from tests.kafka_drain.golden import sealed_copy


class Leaving(FakeCluster):
    """Answers a number of times."""

    asked_times = 0
    _answered = False

    def __init__(self, answers: int) -> None:
        super().__init__({}, id="target")
        self._left = answers

    def cluster_id(self) -> str:
        self.asked_times += 1
        if self._left == 0:
            raise KafkaUnavailableError("no response from Kafka")
        self._left -= 1
        self._answered = True
        return self.id

    def named(self) -> dict[str, str]:
        known = super().named()
        return known if self._answered else {"bootstrap_servers": known["bootstrap_servers"]}

    def keeping_settings(self, *_: object) -> Any:
        raise KafkaUnavailableError("no response from Kafka")


@pytest.mark.parametrize(("answers", "asked", "known"), [(0, 1, ""), (1, 2, "target")])
def test_drill_without_kafka(answers: int, asked: int, known: str, tmp_path: Path) -> None:
    """A cluster that doesn't answer isn't waited for again to name it in the result.

    One that leaves later is asked for what is left of the scratch topics.
    """
    cluster: Any = Leaving(answers)

    result = run_drill(
        sealed_copy(tmp_path / "archive"),
        cluster,
        lambda *_: None,
        DrillRequest(),
        run="tests",
        clock=utc_now,
    )

    assert cluster.asked_times == asked
    assert (result.verdict, result.cluster_id) == ("failed", known)
    assert [problem.detail for problem in result.problems] == ["no response from Kafka"]
