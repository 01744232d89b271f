"""What a user may see, DAG by DAG."""

from __future__ import annotations

from kafka_drain_airflow.pages.rights import Rights


def test_rights() -> None:
    """A DAG is seen if it may be read, and its runs, tasks and XComs too; each is asked once."""
    asked: list[str] = []

    def may_see(dag_id: str) -> bool:
        asked.append(dag_id)
        return dag_id != "without_xcoms"

    rights = Rights(["a", "b", "without_xcoms"], may_see)

    assert rights.of(["a", "other", "without_xcoms"]) == {"a"}
    assert rights.of(["a", "without_xcoms"]) == {"a"}
    assert asked == ["a", "without_xcoms"]
