"""Spark's settings for archives on Google Cloud Storage."""

from __future__ import annotations

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.storage.gcs import gcs_conf


def test_gcs_conf() -> None:
    """Google's own store needs no address, and no credentials on a command line."""
    conf = gcs_conf({"GOOGLE_APPLICATION_CREDENTIALS": "/secrets/key.json"})

    assert all(name.endswith(".impl") for name in conf)


@pytest.mark.parametrize("host", ["http://127.0.0.1:4443", "http://127.0.0.1:4443/"])
def test_gcs_conf_emulator(host: str) -> None:
    """A stand-in is reached at its address, without a login."""
    conf = gcs_conf({"STORAGE_EMULATOR_HOST": host})

    assert conf["spark.hadoop.fs.gs.storage.root.url"] == "http://127.0.0.1:4443/"
    assert conf["spark.hadoop.fs.gs.auth.null.enable"] == "true"


@pytest.mark.parametrize("host", ["127.0.0.1:4443", "ftp://host", "http://"])
def test_gcs_conf_refused(host: str) -> None:
    """What isn't the URL of a server is refused, with what is expected."""
    with pytest.raises(ConfigError, match=r"STORAGE_EMULATOR_HOST = .* http\(s\)://host:port"):
        gcs_conf({"STORAGE_EMULATOR_HOST": host})


@pytest.mark.parametrize("scheme", ["http", "ftp"])
@pytest.mark.parametrize("login", ["me:s3cr3t", "somebody"])
def test_gcs_conf_login(login: str, scheme: str) -> None:
    """A login, which a command line would show, is refused without being repeated."""
    with pytest.raises(ConfigError, match="contains a user or a password") as refused:
        gcs_conf({"STORAGE_EMULATOR_HOST": f"{scheme}://{login}@127.0.0.1:4443"})

    assert login not in str(refused.value)
