"""A frozen plan belongs to its archive's cluster, also if carrying it out asks Kafka nothing."""

from __future__ import annotations

from contextlib import suppress

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import KafkaUnavailableError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import refuse_other_cluster


def refuse_other_if_known(archive: Archive, cluster: KafkaCluster) -> None:
    """Refuse another cluster than the archive's; one that doesn't answer may not be needed.

    Raises:
        ArchiveError: Names both.
    """
    with suppress(KafkaUnavailableError):
        refuse_other_cluster(archive.root, archive.snapshot().document.cluster_id, cluster.asked())
