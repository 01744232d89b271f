"""Which of Kafka's error codes pass by themselves, and which mean that nobody answered."""

from __future__ import annotations

from confluent_kafka import KafkaError

__all__ = ["PASSING", "UNAVAILABLE"]

#: What a broker answers while leaders, coordinators or controllers change or start, or while it
#: decides a transaction: the same question is answered later. "Retriable" in the error table of
#: Kafka's protocol, without those of topics that aren't there (an error of its own here), of fetch
#: and share sessions and of elections (nothing that we ask).
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
        # A new leader doesn't know yet how far its followers have got (KIP-207).
        KafkaError.OFFSET_NOT_AVAILABLE,
        # A transaction that holds the offset is being decided (KIP-447).
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        # librdkafka's own: a coordinator isn't known yet; list_offsets' "No leaders found".
        KafkaError._WAIT_COORD,
        KafkaError._NOENT,
    }
)

#: What is left when the time is up: answers that pass, or, in librdkafka's own codes, none.
UNAVAILABLE = PASSING | {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
}
