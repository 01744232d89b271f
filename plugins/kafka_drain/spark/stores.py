"""Spark's settings and jars for an archive's object store."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_drain.spark.jars import fetch as jar_files
from kafka_drain.storage.gcs import GCS_SCHEMES, gcs_conf
from kafka_drain.storage.s3 import S3_SCHEMES, s3_conf, scheme_of


def store_conf(
    archive: str, environment: Mapping[str, str], *, is_locked: bool = False
) -> dict[str, str]:
    """Return Spark's configuration for an archive's store; empty for others.

    Args:
        archive: The archive's path or URL.
        environment: Source of the variables of AWS's and of Google's clients.
        is_locked: Whether the pipeline has the store lock files.

    Raises:
        ConfigError: When a variable isn't acceptable.
    """
    scheme = scheme_of(archive)
    if scheme in S3_SCHEMES:
        return s3_conf(environment, is_locked=is_locked)
    return gcs_conf(environment) if scheme in GCS_SCHEMES else {}


def store_jars(archive: str) -> list[str]:
    """Return the jars with which Spark opens an archive's store; none for others.

    Raises:
        MachineError: When one is missing.
    """
    scheme = scheme_of(archive)
    if scheme in S3_SCHEMES:
        return [str(jar) for jar in jar_files.verified(jar_files.S3)]
    if scheme in GCS_SCHEMES:
        return [str(jar) for jar in jar_files.verified(jar_files.GCS)]
    return []
