"""What Spark gets to open an archive's store."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.spark import stores
from kafka_drain.spark.jars import fetch as jars
from kafka_drain.spark.stores import store_conf, store_jars

EVERYWHERE = {
    "AWS_ENDPOINT_URL": "http://s3:9000",
    "STORAGE_EMULATOR_HOST": "http://gcs:4443",
}


@pytest.mark.parametrize(
    ("archive", "setting", "jar"),
    [
        ("s3://bucket/a", "spark.hadoop.fs.s3a.endpoint", "s3.jar"),
        ("s3a://bucket/a", "spark.hadoop.fs.s3a.endpoint", "s3.jar"),
        ("gs://bucket/a", "spark.hadoop.fs.gs.storage.root.url", "gcs.jar"),
    ],
)
def test_store_conf_and_jars(
    archive: str, setting: str, jar: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each store has its own settings and jars, and no other's."""
    monkeypatch.setattr(stores.jar_files, "verified", lambda conf: [Path(f"/jars/{conf}.jar")])

    conf = store_conf(archive, EVERYWHERE)

    assert setting in conf
    assert not {key.split(".")[3] for key in conf if key.startswith("spark.hadoop.fs.")} & (
        {"gs"} if jar == "s3.jar" else {"s3a"}
    )
    assert store_jars(archive) == [f"/jars/{jar}"]


@pytest.mark.parametrize("archive", ["/archives/a", "file:///a", "hdfs://host/a", "abfs://c/a"])
def test_store_conf_elsewhere(archive: str) -> None:
    """An archive elsewhere changes nothing, whatever the environment says."""
    assert store_conf(archive, EVERYWHERE) == {}
    assert store_jars(archive) == []


def test_gcs_jar_is_locked() -> None:
    """Google's connector is the same for each Spark."""
    assert jars.GCS in jars.CONFS
    assert not jars.not_offered(jars.GCS)
