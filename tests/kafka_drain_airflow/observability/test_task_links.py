"""The targets of a task instance's buttons."""

from __future__ import annotations

import pytest

from kafka_drain_airflow.observability.task_links import archive_address


@pytest.mark.parametrize(
    ("dag_id", "task_type", "pipeline", "page"),
    [
        ("drain_a", "ValidateManifestOperator", "a", "/archives/drain_a"),
        ("maintain_a.b", "MaintainOperator", "a.b", "/archives/drain_a.b"),
        ("drain_group_g", "KafkaDrainGroupOperator", "a", "/archives"),
        ("drain_group_g", "ValidateManifestOperator", "a", "/archive?at=s3%3A%2F%2Fb%2Fa"),
        # A pipeline whose name looks like this.
        ("drain_group_g", "KafkaDrainOperator", "group_g", "/archives/drain_group_g"),
        # Whatever a user's own DAG is called.
        ("maintain_everything", "MaintainOperator", "a", "/archive?at=s3%3A%2F%2Fb%2Fa"),
        ("elt", "RepublishToKafkaOperator", "a", "/archive?at=s3%3A%2F%2Fb%2Fa"),
        ("team.drain.a", "KafkaDrainOperator", "a", "/archive?at=s3%3A%2F%2Fb%2Fa"),
    ],
)
def test_archive_address(dag_id: str, task_type: str, pipeline: str, page: str) -> None:
    """A task links to its archive's page, a group's drain to the page of all archives."""
    assert archive_address(dag_id, task_type, pipeline, "s3://b/a").endswith(f"/kafka-drain{page}")
