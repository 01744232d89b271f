"""Spark's settings for archives on Google Cloud Storage."""

from __future__ import annotations

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.storage.gcs import gcs_conf

#: Without it, Spark doesn't know what `gs` is.
CONNECTOR = {
    "spark.hadoop.fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
}


def test_gcs_conf() -> None:
    """Google's own store needs no address, and no credentials on a command line."""
    conf = gcs_conf({"GOOGLE_APPLICATION_CREDENTIALS": "/secrets/key.json"})

    assert conf == CONNECTOR


@pytest.mark.parametrize(
    ("host", "root"),
    [
        ("http://127.0.0.1:4443", "http://127.0.0.1:4443/"),
        ("http://127.0.0.1:4443/", "http://127.0.0.1:4443/"),
        ("https://host/FOR_US_X", "https://host/FOR_US_X/"),
    ],
)
def test_gcs_conf_emulator(host: str, root: str) -> None:
    """A stand-in is reached at its address, without a login."""
    conf = gcs_conf({"STORAGE_EMULATOR_HOST": host})

    assert conf == CONNECTOR | {
        "spark.hadoop.fs.gs.storage.root.url": root,
        "spark.hadoop.fs.gs.project.id": "emulator",
        "spark.hadoop.fs.gs.auth.service.account.enable": "false",
        "spark.hadoop.fs.gs.auth.null.enable": "true",
    }


@pytest.mark.parametrize("host", ["127.0.0.1:4443", "ftp://host", "http://"])
def test_gcs_conf_refused(host: str) -> None:
    """What isn't the URL of a server is refused, with what is expected."""
    with pytest.raises(ConfigError, match=r"STORAGE_EMULATOR_HOST = .* http\(s\)://host:port"):
        gcs_conf({"STORAGE_EMULATOR_HOST": host})


@pytest.mark.parametrize("scheme", ["http", "ftp"])
@pytest.mark.parametrize("login", ["me:s3cr3t", "somebody"])
def test_gcs_conf_login(login: str, scheme: str) -> None:
    """A login, which a command line would show, is refused without being repeated."""
    says = r"contains a user or a password.*; leave them out: a stand-in has no logins$"
    with pytest.raises(ConfigError, match=says) as refused:
        gcs_conf({"STORAGE_EMULATOR_HOST": f"{scheme}://{login}@127.0.0.1:4443"})

    assert login not in str(refused.value)
