"""OpenLineage facets: Kafka topics and archives, named as OpenLineage's spec names datasets.

Used only if Airflow's OpenLineage provider is installed, which queries operators on completion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

#: Namespace and name.
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Lineage:
    """The datasets that a task read and wrote.

    Attributes:
        inputs: Datasets that it read.
        outputs: Number of records by the dataset to which they were written.
    """

    inputs: Sequence[Name]
    outputs: Mapping[Name, int]

    def to_openlineage(self) -> OperatorLineage[Any, Any]:
        """Return the lineage in the form that Airflow's provider expects."""
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import InputDataset, OutputDataset
        from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

        return OperatorLineage(
            inputs=[InputDataset(*name) for name in self.inputs],
            outputs=[
                OutputDataset(
                    *name,
                    outputFacets={
                        "outputStatistics": statistics.OutputStatisticsOutputDatasetFacet(records)
                    },
                )
                for name, records in self.outputs.items()
            ],
        )


def drain_lineage(
    bootstrap_servers: str, topics: Iterable[str], archive: str, records: int
) -> Lineage:
    """Return the lineage of a drain: its topics, and the number of records it wrote."""
    cluster = topic_names(bootstrap_servers)
    return Lineage([(cluster, topic) for topic in sorted(topics)], {archive_name(archive): records})


def group_lineage(drains: Iterable[Lineage]) -> Lineage:
    """Return the combined lineage of several drains in one task."""
    drains = list(drains)
    return Lineage(
        list(dict.fromkeys(name for drain in drains for name in drain.inputs)),
        {name: records for drain in drains for name, records in drain.outputs.items()},
    )


def republish_lineage(bootstrap_servers: str, archive: str, records: Mapping[str, int]) -> Lineage:
    """Return the lineage of a republish, given the number of records sent to each topic."""
    cluster = topic_names(bootstrap_servers)
    outputs = {(cluster, topic): number for topic, number in records.items()}
    return Lineage([archive_name(archive)], outputs)


def erase_lineage(archive: str, records: int) -> Lineage:
    """Return the lineage of an erasure: the archive is rewritten, with so many records kept."""
    return Lineage([archive_name(archive)], {archive_name(archive): records})


def topic_names(bootstrap_servers: str) -> str:
    """Return the namespace of a cluster's topics: `kafka://` and one of its bootstrap addresses."""
    first = min(address.strip() for address in bootstrap_servers.split(","))
    address = first.rpartition("//")[2]
    return f"kafka://{address if ':' in address else f'{address}:9092'}"


def archive_name(archive: str) -> Name:
    """Return an archive's namespace and name: for a local folder, `file` and its path."""
    url = urlsplit(archive)
    if not url.scheme or url.scheme == "file":
        return "file", url.path.rstrip("/")
    scheme = {"s3a": "s3"}.get(url.scheme, url.scheme)
    return f"{scheme}://{url.netloc}", url.path.strip("/")
