"""Archives on Google Cloud Storage: Spark's settings for it.

Google's own environment variables define how it is reached, for gcsfs and for Google's Hadoop
connector alike: GOOGLE_APPLICATION_CREDENTIALS names a file with credentials; without it, the
machine's service account is used. STORAGE_EMULATOR_HOST is the URL of a stand-in without a login.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_drain.storage.endpoints import check_endpoint

GCS_SCHEMES = ("gs",)
#: Names the URL of a stand-in for Google's store, for gcsfs too.
EMULATOR = "STORAGE_EMULATOR_HOST"

_PACKAGE = "com.google.cloud.hadoop.fs.gcs"
#: Both of Hadoop's interfaces, as a jar that Spark adds later isn't searched for them; Spark opens
#: the checkpoint through the second.
_CONNECTOR = {
    "spark.hadoop.fs.gs.impl": f"{_PACKAGE}.GoogleHadoopFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.gs.impl": f"{_PACKAGE}.GoogleHadoopFS",
}


def gcs_conf(environment: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's configuration for Google Cloud Storage.

    Args:
        environment: Source of Google's variables. Credentials aren't taken from it: the connector
            reads them itself.

    Raises:
        ConfigError: When STORAGE_EMULATOR_HOST isn't a URL, or contains a login.
    """
    conf = dict(_CONNECTOR)
    emulator = environment.get(EMULATOR)
    if emulator:
        check_endpoint(EMULATOR, emulator, "leave them out: a stand-in has no logins")
        conf |= {
            "spark.hadoop.fs.gs.storage.root.url": f"{emulator.rstrip('/')}/",
            "spark.hadoop.fs.gs.project.id": "emulator",
            "spark.hadoop.fs.gs.auth.service.account.enable": "false",
            "spark.hadoop.fs.gs.auth.null.enable": "true",
        }
    return conf
