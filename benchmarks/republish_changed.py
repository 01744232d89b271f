"""The speed of a republish that changes records, compared with one that doesn't.

plain   the worker engine, strict, as in `republish.py`
hash    with pseudonyms for keys
mask    with a field of each JSON value masked

Arms run in turns on the same broker and the same two cores. Seconds cover opening and sending, like
a receipt's; planning and verifying, which apply the change as well, are given beside them.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.batch import TOPIC, drain, validate
from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.republish.engines.select import Engines
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import plan_republish
from kafka_drain.storage.lease import utc_now

PARTITIONS = 4
KEY = b"a key of pseudonyms, for a measurement"
ARMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "hash": {"hash_fields": ("key",)},
    "mask": {"mask": ("$.email",)},
}


def fill(servers: str, records: int) -> None:
    """Send JSON values of about 100 bytes, with a key for each of so many customers."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "compression.type": "lz4"})
    for n in range(records):
        value = {
            "id": n,
            "email": f"c{n}@example.com",
            "city": "Berlin",
            "sum": n % 1000,
            "ok": True,
        }
        while True:
            try:
                producer.produce(
                    TOPIC,
                    json.dumps(value).encode(),
                    b"customer %d" % (n % 100_000),
                    n % PARTITIONS,
                )
                break
            except BufferError:
                producer.poll(0.05)
        if not n % 1000:
            producer.poll(0)
    producer.flush(60)


def new_topic(servers: str, name: str) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    topic = NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic])[name].result(20)


def turn(archive: Path, servers: str, arm: str) -> dict[str, float]:
    """Run a republish with one arm; return its seconds: plan, send, all of it."""
    target = f"target-{uuid.uuid4().hex[:8]}"
    new_topic(servers, target)
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": servers}))
    began = time.monotonic()
    republish = plan_republish(
        Archive.at(str(archive)),
        cluster,
        RepublishRequest(target_topic=target, engine="worker", run_name=target, **ARMS[arm]),
        now=utc_now(),
        say=lambda line: None,
        apply=True,
        hash_key=KEY,
    )
    planned = time.monotonic() - began
    pipeline = Pipeline(name="none", topics=["none"], archive="/none")
    engines = Engines(str(archive), cluster, pipeline, archive, _no_spark)
    receipt = republish.execute(engines, utc_now)
    assert receipt["verification"]["is_exact"]
    return {"plan": planned, "send": receipt["seconds"], "all": time.monotonic() - began}


def _no_spark(*_: Any) -> None:
    raise RuntimeError("the worker engine needs no Spark")


def main(folder: Path, records: int, rounds: int) -> None:
    """Measure, and print figures as JSON."""
    with LocalKafka(folder / "broker") as broker:
        servers = broker.bootstrap_servers
        new_topic(servers, TOPIC)
        fill(servers, records)
        archive = folder / "archive"
        drain(archive, servers)
        assert validate(str(archive), servers)["complete"]
        turns: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
        for number in range(rounds):
            for arm in [*ARMS][:: 1 if number % 2 == 0 else -1]:
                turns[arm].append(turn(archive, servers, arm))
                print(arm, turns[arm][-1], os.getloadavg()[0], flush=True)
    figures = {
        arm: {
            what: {
                "seconds": round(median(one[what] for one in turns[arm]), 2),
                "ratio": round(
                    median(
                        plain[what] / one[what]
                        for plain, one in zip(turns["plain"], turns[arm], strict=True)
                    ),
                    2,
                ),
            }
            for what in ("plan", "send", "all")
        }
        for arm in ARMS
    }
    print(json.dumps({"records": records, "rounds": rounds, "arms": figures}, indent=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
