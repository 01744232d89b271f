"""Schemes of an archive's URL."""

from __future__ import annotations

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.storage.paths import locate
from kafka_drain.storage.schemes import normalised


@pytest.mark.parametrize(
    ("location", "written"),
    [
        ("/data/orders/", "/data/orders"),
        ("/", "/"),
        ("file:///data/orders/", "/data/orders"),
        ("file:///", "/"),
        ("file:/data/orders/", "/data/orders"),
        ("file://localhost/data/orders", "/data/orders"),
        ("s3://bucket/orders/", "s3://bucket/orders"),
        ("s3a://bucket", "s3a://bucket"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("abfs://c@a/b", "abfs://c@a/b"),
        ("abfss://c@a/b", "abfss://c@a/b"),
        ("hdfs://namenode:8020/a/", "hdfs://namenode:8020/a"),
        ("hdfs://nameservice1/a", "hdfs://nameservice1/a"),
    ],
)
def test_normalised(location: str, written: str) -> None:
    """A folder has one way to be written; a file's URL is its path."""
    assert normalised(location) == written


@pytest.mark.parametrize(
    ("location", "match"),
    [
        ("s4://b/x", r"^s4://b/x is in no store that is supported; did you mean s3://\?; accepted"),
        ("abf://x", r"did you mean abfs://\?"),
        (
            "https://h/x",
            r"no store that is supported; accepted: an absolute path, file:///…, s3://…",
        ),
        (
            "file://host/x",
            r"no store that is supported; did you mean file://\?; accepted: .*file:///",
        ),
        ("file:data", "isn't absolute; accepted: an absolute path, file:///"),
        ("", "an archive's path is empty"),
        ("hdfs:///x", "doesn't say which HDFS; write hdfs://namenode:8020/"),
        ("hdfs://me@n/x", "has a user in it; set HADOOP_USER_NAME"),
        ("viewfs://n/x", "can't be an archive's URL: a mount table is each client's own"),
        ("webhdfs://n/x", "can't be an archive's URL: write hdfs://"),
        ("swebhdfs://n/x", "can't be an archive's URL: write hdfs://"),
    ],
)
def test_normalised_refused(location: str, match: str) -> None:
    """What no store is behind is refused, with those that there are."""
    with pytest.raises(ConfigError, match=match):
        normalised(location)


@pytest.mark.parametrize("scheme", ["hdfs", "webhdfs", "https"])
def test_normalised_password(scheme: str) -> None:
    """Logs show the error, so it doesn't show a login."""
    with pytest.raises(ConfigError, match=rf"{scheme}://…@host/x ") as error:
        normalised(f"{scheme}://me:hidden@host/x")
    assert "hidden" not in str(error.value)


def test_locate_unknown_scheme() -> None:
    """A command says the same of an archive that it is given."""
    with pytest.raises(ConfigError, match=r"did you mean s3://\?"):
        locate("s4://bucket/x")


@pytest.mark.parametrize("url", ["file:///data/orders", "file:/data/orders"])
def test_locate_file_url(url: str) -> None:
    """A file's URL is the folder, also for what asks the operating system about it."""
    found = locate(url)

    assert (str(found), type(found)) == ("/data/orders", type(locate("/data/orders")))
