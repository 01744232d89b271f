"""The targets of a task instance's buttons."""

from __future__ import annotations

import pytest

from kafka_drain_airflow.observability.task_links import archive_address


@pytest.mark.parametrize(
    ("dag_id", "task_id", "task_type", "page"),
    [
        ("drain_a", "validate", "ValidateManifestOperator", "/archives/drain_a"),
        ("maintain_a/b", "maintain", "MaintainOperator", "/archives/drain_a%2Fb"),
        ("drain_group_g", "validate_a", "ValidateManifestOperator", "/archives/drain_a"),
        ("drain_group_g", "drain", "KafkaDrainGroupOperator", "/archives"),
        # A pipeline whose name looks like this.
        ("drain_group_g", "drain", "KafkaDrainOperator", "/archives/drain_group_g"),
        ("other_a", "validate", "ValidateManifestOperator", ""),
        ("drain", "drain", "KafkaDrainOperator", ""),
    ],
)
def test_archive_address(dag_id: str, task_id: str, task_type: str, page: str) -> None:
    """A task links to its archive's page, a group's drain to the page of all archives."""
    address = archive_address(dag_id, task_id, task_type)

    assert address.endswith(page)
    assert bool(address) == bool(page)
