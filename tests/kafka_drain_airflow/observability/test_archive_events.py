"""Asset events of an archive: their content, and the outlets through which they are emitted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Asset, AssetAlias
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain_airflow.observability import archive_events
from kafka_drain_airflow.observability.archive_events import (
    archive_asset,
    archive_of,
    archive_uri,
    hashable,
    replaced_alias,
    tell_replaced,
    tell_validated,
)
from tests.odd_paths import WORKS
from tests.tables import each_of

PIPELINE = Pipeline(name="orders", topics=["orders"], archive="/archives/orders")


class FakeOutlet:
    """A fake of what Airflow gives a task for one of its outlets."""

    def __init__(self) -> None:
        self.extra: dict[str, Any] = {}
        self.added: list[tuple[str, dict[str, Any]]] = []

    def add(self, asset: Any, extra: dict[str, Any]) -> None:
        # As Airflow's database does; before that, Airflow 2.11 puts the entries into a set.
        self.added.append((asset.uri, json.loads(json.dumps(extra))))
        self.hashes = [hash(frozenset(extra.items()))] if not AIRFLOW_V_3_0_PLUS else []


class FakeEvents:
    """A fake of Airflow's outlet events: by outlet, which Airflow 3.0 can't hash."""

    def __init__(self, *known: tuple[Any, FakeOutlet]) -> None:
        self.known = known

    def __getitem__(self, key: Any) -> FakeOutlet:
        return next(outlet for known, outlet in self.known if known is key)


@pytest.mark.parametrize("keeps", [True, False])
def test_archive_uri_of_container(keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives in two containers of one account have two assets, also where Airflow drops users."""
    monkeypatch.setattr(archive_events, "_keeps_user", lambda: keeps)
    archive = "abfss://prod@acct.dfs.core.windows.net/a@b"

    uri = archive_uri(archive)

    assert ("prod@acct" in uri, "prod%40acct" in uri) == (keeps, not keeps)
    assert archive_of(uri) == archive


@pytest.mark.parametrize(
    ("archive", "uri"),
    [
        ("/archives/orders", "file:///archives/orders"),
        ("s3://bucket/orders", "s3://bucket/orders"),
        ("/data/a b;c,d=e+f&g'[h]{i}", "file:///data/a b;c,d=e+f&g'[h]{i}"),
        ("/data/c#1/orders", "file:///data/c%231/orders"),
        ("/data/q?b=1&a=2/orders", "file:///data/q%3Fb=1&a=2/orders"),
        ("/data/größe/orders", "file:///data/gr%C3%B6%C3%9Fe/orders"),
        ("/data/p%20q", "file:///data/p%2520q"),
        ("s3://b/c#1/größe", "s3://b/c%231/gr%C3%B6%C3%9Fe"),
    ],
)
def test_archive_asset_uri(archive: str, uri: str) -> None:
    """The asset's URI is the location of the archive, whatever characters that has."""
    asset = archive_asset(Pipeline(name="orders", topics=["orders"], archive=archive))

    assert isinstance(asset, Asset)
    assert asset.uri == uri
    assert archive_of(asset.uri) == archive


def test_archive_asset_connection() -> None:
    """The pages learn from the asset whose archive it is and how to open it; it has no secret."""
    given = {"name": "orders", "topics": ["orders"], "archive": "s3://bucket/orders"}

    defaults = {"kafka_conn_id": "kafka_default", "spark_conn_id": "spark_default"}
    assert archive_asset(Pipeline(**given)).extra == {"kafka_drain_pipeline": "orders", **defaults}
    more = {"archive_conn_id": "aws_archives", "registry_conn_id": "registry"}
    more |= {"kafka_conn_id": "kafka_orders", "spark_conn_id": "yarn"}
    asset = archive_asset(Pipeline(**given, **more))
    assert asset.extra == {"kafka_drain_pipeline": "orders", **more}


@pytest.mark.parametrize(
    ("own", "of_values", "told"),
    [
        ("registry", None, "registry"),
        (None, "registry", "registry"),
        ("registry", "of_values", "registry"),
        (None, None, None),
    ],
)
def test_archive_asset_registry(own: str | None, of_values: str | None, told: str | None) -> None:
    """The pages learn of the registry whose schemas are kept, also if only its values name it."""
    values = {"encoding": "avro", "registry_conn_id": of_values} if of_values else None
    asset = archive_asset(
        Pipeline(name="p", topics=["t"], archive="/a", registry_conn_id=own, values=values)
    )

    assert asset.extra.get("registry_conn_id") == told


def test_tell_replaced_by_alias() -> None:
    """Replaced files are reported only through the alias: other outlets get an event anyway."""
    alias, other = replaced_alias(PIPELINE), Asset("file:///elsewhere")
    outlets = [FakeOutlet(), FakeOutlet()]
    context = {"outlet_events": FakeEvents((alias, outlets[0]), (other, outlets[1]))}

    tell_replaced([alias, other], context, PIPELINE, {"files_removed": 3})

    assert outlets[0].added == [("file:///archives/orders", {"files_removed": 3, "segments": []})]
    assert (outlets[1].added, outlets[1].extra) == ([], {})


def test_tell_validated_extra() -> None:
    """A validation's result is the extra of its outlets' events."""
    asset, outlet = archive_asset(PIPELINE), FakeOutlet()

    events = FakeEvents((asset, outlet))
    tell_validated([asset], {"outlet_events": events}, PIPELINE, {"segments": [1]})

    assert (outlet.extra, outlet.added) == ({"segments": [1]}, [])


def test_tell_validated_by_alias() -> None:
    """Mapped validations share their outlets: through an alias, each tells of its own archive."""
    alias, outlet = AssetAlias("archives"), FakeOutlet()

    events = FakeEvents((alias, outlet))
    tell_validated([alias], {"outlet_events": events}, PIPELINE, {"segments": [1]})

    assert outlet.added == [("file:///archives/orders", {"segments": [1]})]
    assert outlet.extra == {}


def test_hashable() -> None:
    """What an event tells has a hash, equal for equal content, and stays the same JSON."""
    told = {"segments": [{"offsets": {"a-0": [[0, 5]]}, "records": 5}], "lag": None, "empty": []}
    made = hashable(told)

    assert hash(frozenset(made.items())) == hash(frozenset(hashable(told).items()))
    assert hash(made) != hash(hashable({**told, "lag": 1}))
    assert json.dumps(made) == json.dumps(told)


def test_tell_without_events() -> None:
    """A task that runs without Airflow's events emits nothing, and doesn't fail."""
    tell_validated([archive_asset(PIPELINE)], {}, PIPELINE, {"segments": []})
    tell_replaced([replaced_alias(PIPELINE)], {}, PIPELINE, {})


@each_of("what", WORKS)
def test_archive_asset_odd_path(what: str) -> None:
    """Airflow takes the URI of each path, keeps it as it is, and leads back to one archive."""
    path = f"/data/{WORKS[what]}/a"
    asset = archive_asset(Pipeline(name="p", topics=["t"], archive=path))

    assert asset.uri.isascii()
    assert asset.uri.isprintable()
    assert archive_of(asset.uri) == path
    assert Asset(asset.uri).uri == asset.uri


def test_archive_asset_too_long() -> None:
    """A path whose URI Airflow's database doesn't take is refused with the pipeline's name."""
    path = "/data" + f"/{'日' * 80}" * 3
    with pytest.raises(ConfigError, match=r"pipeline 'p': .* URI of 2,\d\d\d characters"):
        archive_asset(Pipeline(name="p", topics=["t"], archive=path))
