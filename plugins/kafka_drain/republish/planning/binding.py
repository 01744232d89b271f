"""Bind a run to one cluster, and to topics by id. Names alone don't identify a topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kafka_drain.errors import TopicError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import is_other_cluster, is_other_topic
from kafka_drain.kafka.topic_watch import TopicWatch
from kafka_drain.proof.topic_ids import topic_ids_now
from kafka_drain.republish.planning.documents import BindingJson, ReceiptJson
from kafka_drain.republish.planning.plan import RepublishPlan


@dataclass(frozen=True)
class Binding:
    """Where a run has sent, or will send, its records.

    Attributes:
        cluster_id: The cluster's id; empty if it wasn't recorded.
        topics: Topic ids by topic name; an id is empty if it wasn't recorded.
    """

    cluster_id: str = ""
    topics: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_plan(cls, plan: RepublishPlan) -> Binding:
        """Return the cluster and topics that a plan binds its run to."""
        return cls(plan.cluster_id, {target.topic: target.id for target in plan.targets})

    @classmethod
    def of_receipt(cls, receipt: ReceiptJson) -> Binding:
        """Return the binding of a finished run."""
        topics = {sent["target_topic"]: sent.get("target_topic_id", "") for sent in receipt["sent"]}
        return cls(receipt.get("cluster_id", ""), topics)

    @classmethod
    def from_dict(cls, document: BindingJson) -> Binding:
        """Read the result of `to_dict`."""
        return cls(document["cluster_id"], document["topics"])

    def to_dict(self) -> BindingJson:
        """Return the binding as JSON types."""
        return {"cluster_id": self.cluster_id, "topics": dict(sorted(self.topics.items()))}

    def plus(self, newer: Binding) -> Binding:
        """Merge with the binding of a newer run of the same follower; the newer one wins."""
        known = {topic: id for topic, id in newer.topics.items() if id or topic not in self.topics}
        return Binding(newer.cluster_id or self.cluster_id, {**self.topics, **known})

    def of_topics(self, names: Collection[str]) -> Binding:
        """Return the binding restricted to some topics."""
        return Binding(self.cluster_id, {t: id for t, id in self.topics.items() if t in names})

    def contradicted_by(self, seen: Binding) -> str | None:
        """Return the contradiction between a cluster and the recorded one; None for none.

        Args:
            seen: The cluster's id, and those of the topics that exist in it.
        """
        if is_other_cluster(self.cluster_id, seen.cluster_id):
            return f"sends to Kafka cluster {self.cluster_id}, but this is {seen.cluster_id}"
        for topic, expected in sorted(self.topics.items()):
            id = seen.topics.get(topic)
            if id is None:
                named = f" with id {expected}" * bool(expected)
                return f"sends to topic {topic}{named}, which doesn't exist"
            if is_other_topic(expected, id):
                return (
                    f"sends to topic {topic} with id {expected}, which has been recreated since: "
                    f"its id is now {id}"
                )
        return None


#: For how long Kafka may not answer: senders give up by themselves after five minutes.
AWAY_SECONDS = 360.0


def watch_targets(cluster: KafkaCluster, plan: RepublishPlan) -> TopicWatch:
    """Return the target topics of a plan, to look at while they are sent to."""
    return TopicWatch(
        cluster,
        Binding.of_plan(plan).topics,
        f"while run {plan.key} was sending to it. Nothing more was sent, and what was sent went "
        "with the topic; find out who deleted it, then start a new run (--run-name; run_name in "
        "Airflow) into an empty topic",
        AWAY_SECONDS,
    )


def others_gone(cluster: KafkaCluster, bound: Binding, needed: Collection[str]) -> list[str]:
    """Return warnings about bound topics that have changed but that this run doesn't send to.

    A mirror of many topics continues when one of its targets was deleted on purpose.
    """
    others = bound.of_topics(bound.topics.keys() - set(needed))
    seen = Binding(bound.cluster_id, topic_ids_now(cluster, others.topics.keys()))
    found = (others.of_topics([name]).contradicted_by(seen) for name in sorted(others.topics))
    return [
        f"WARNING an earlier run {text}; this one has no records for it" for text in found if text
    ]


def contradiction_of(cluster: KafkaCluster, bound: Binding) -> str | None:
    """Return the contradiction between a cluster and a run's binding; None for none."""
    here = cluster.cluster_id()
    return bound.contradicted_by(Binding(here, topic_ids_now(cluster, bound.topics.keys())))


def refuse_other_target(cluster: KafkaCluster, bound: Binding, run: str, *, said: str) -> None:
    """Refuse to resume a run whose target is no longer the one it started with.

    Args:
        cluster: The target's cluster.
        bound: The run's cluster and topics.
        run: The run's display name.
        said: The error's statement about records, such as "Nothing was sent".

    Raises:
        TopicError: Names both clusters, or both topic ids, and what to do.
    """
    contradiction = contradiction_of(cluster, bound)
    if contradiction is not None:
        raise TopicError(
            f"run {run} {contradiction}. {said}; resume it with the original target, or name "
            "another run (--run; run_name in Airflow) to start over here"
        )
