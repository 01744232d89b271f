"""Whether a drain may begin an archive: one that is gone isn't a first drain."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from kafka_drain.drain.preflight import refuse_lost_archive
from kafka_drain.errors import ArchiveError

LAST = datetime(2026, 1, 31, 12, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("validated_at", [LAST, None])
@pytest.mark.parametrize("is_meant", [True, False])
def test_refuse_lost_archive(is_there: bool, validated_at: datetime | None, is_meant: bool) -> None:
    """Refused is only what is gone, was known, and isn't meant: a first drain ever is one step."""

    def decide() -> None:
        refuse_lost_archive(
            "orders", "/data/orders", is_there=is_there, validated_at=validated_at,
            is_meant=is_meant,
        )  # fmt: skip

    if is_there or validated_at is None or is_meant:
        decide()
        return
    with pytest.raises(ArchiveError) as refused:
        decide()
    said = str(refused.value)
    assert said.startswith("/data/orders holds no archive, but Airflow knows that one was validat")
    assert "last at 2026-01-31 12:00:00 UTC" in said
    assert "`findmnt -T /data/orders`" in said
    assert "run drain_orders with new_archive on" in said


def test_refuse_lost_archive_in_store() -> None:
    """In a store there is nothing to mount."""
    with pytest.raises(ArchiveError) as refused:
        refuse_lost_archive(
            "orders", "s3://b/orders", is_there=False, validated_at=LAST, is_meant=False
        )
    assert "findmnt" not in str(refused.value)
