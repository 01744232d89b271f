"""What a user may see, DAG by DAG."""

from __future__ import annotations

from collections.abc import Collection

from kafka_drain_airflow.pages.rights import Rights


def test_rights() -> None:
    """A DAG is seen if it may be read, and its runs, tasks and XComs too; each is asked once."""
    asked: list[list[str]] = []

    def visible(dag_ids: Collection[str]) -> list[str]:
        asked.append([*dag_ids])
        return [dag_id for dag_id in dag_ids if dag_id != "without_xcoms"]

    rights = Rights(["a", "b", "without_xcoms"], visible)

    assert rights.of(["a", "other", "without_xcoms"]) == {"a"}
    assert rights.of(["a", "without_xcoms"]) == {"a"}
    assert rights.of(["b", "a"]) == {"a", "b"}
    assert asked == [["a", "without_xcoms"], ["b"]]
