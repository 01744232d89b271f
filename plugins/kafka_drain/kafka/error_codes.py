"""Kafka's error codes: which ones are transient, and which ones mean that no broker responded."""

from __future__ import annotations

from confluent_kafka import KafkaError

#: librdkafka's `_DESTROY_BROKER`: the broker that was asked has left the cluster's metadata, as
#: one does that was killed. As a number, because confluent-kafka 2.11 has no name for it.
DESTROY_BROKER = -137

#: Errors while leaders, coordinators or controllers change or start, or while a transaction is
#: being decided: a retry of the same request will succeed. These are the "retriable" codes in the
#: error table of Kafka's protocol, except those for missing topics (reported as an error here), for
#: fetch and share sessions, and for elections (not used here).
PASSING = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_CONTROLLER,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        # A new leader doesn't know its followers' progress yet (KIP-207).
        KafkaError.OFFSET_NOT_AVAILABLE,
        # A transaction that holds the offset is being decided (KIP-447).
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        # librdkafka's own: the coordinator isn't known yet; list_offsets' "No leaders found".
        KafkaError._WAIT_COORD,
        KafkaError._NOENT,
        DESTROY_BROKER,
    }
)

#: Errors that remain at the deadline: transient ones, and librdkafka's codes for no response.
UNAVAILABLE = PASSING | {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
}
