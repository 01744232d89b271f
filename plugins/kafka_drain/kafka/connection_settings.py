"""The table of settings of a Kafka connection, and the use of each, without a client.

The names are those of librdkafka 2.16's CONFIGURATION.md. A connection is often shared with other
consumers and producers, so their settings may be in it: kafka-drain doesn't use these, and sets its
own per client. Opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Use(Enum):
    """The use of a setting."""

    PASSED = "passed to kafka-drain's own clients"
    TRANSLATED = "passed to kafka-drain's own clients, and translated for Spark's Java client"
    OURS = "not used: kafka-drain decides it"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a Kafka connection.

    Attributes:
        use: Its treatment.
        why: The reason, or what the setting is for.
        warning: The consequence of what isn't done; empty if there is none.
    """

    use: Use
    why: str
    warning: str = ""


#: Rows of the table: what happens, why, the names, and what follows, if anything does.
_ROWS: tuple[tuple[Use, str, str, str], ...] = (
    (
        Use.TRANSLATED,
        "where the cluster is, and who asks",
        """
        bootstrap.servers metadata.broker.list client.id client.rack client.dns.lookup
        security.protocol socket.connection.setup.timeout.ms reconnect.backoff.ms
        reconnect.backoff.max.ms
        """,
        "",
    ),
    (
        Use.TRANSLATED,
        "TLS: whom to trust, and the client's own certificate",
        """
        ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.key.location
        ssl.key.pem ssl.key.password ssl.keystore.location ssl.keystore.password
        ssl.endpoint.identification.algorithm
        """,
        "",
    ),
    (
        Use.TRANSLATED,
        "the login",
        """
        sasl.mechanism sasl.mechanisms sasl.username sasl.password sasl.kerberos.service.name
        sasl.kerberos.principal sasl.kerberos.keytab sasl.kerberos.min.time.before.relogin
        sasl.oauthbearer.method sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
        sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.scope
        sasl.oauthbearer.extensions sasl.oauthbearer.token.endpoint.url
        sasl.oauthbearer.sub.claim.name https.ca.location https.ca.pem
        enable.sasl.oauthbearer.unsecure.jwt sasl.oauthbearer.config oauth_cb
        """,
        "",
    ),
    (
        Use.PASSED,
        "a login that Spark's Java client doesn't have before Kafka 4.1",
        """
        sasl.oauthbearer.grant.type sasl.oauthbearer.assertion.algorithm
        sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.pem
        sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
        sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
        sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
        sasl.oauthbearer.assertion.jwt.template.file
        sasl.oauthbearer.metadata.authentication.type
        """,
        "",
    ),
    (
        Use.PASSED,
        "details of OpenSSL, which Java doesn't use",
        "ssl.cipher.suites ssl.curves.list ssl.sigalgs.list ssl.providers",
        "Spark's Java client negotiates TLS with Java's own defaults",
    ),
    (
        Use.PASSED,
        "a list of revoked certificates, which Java's Kafka client can't read",
        "ssl.crl.location",
        "Spark's Java client doesn't check whether the broker's certificate was revoked",
    ),
    (
        Use.PASSED,
        "no check of the broker's certificate, which Java's Kafka client always makes",
        "enable.ssl.certificate.verification",
        "Spark's Java client verifies the broker's certificate in any case: if it isn't signed by "
        "a known authority, give that authority's in ssl.ca.location",
    ),
    (
        Use.PASSED,
        "Windows only",
        "ssl.ca.certificate.stores",
        "Spark's Java client trusts what Java trusts, or ssl.ca.location",
    ),
    (
        Use.PASSED,
        "connections, metadata, statistics and logs of librdkafka; Java has its own",
        """
        builtin.features metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms
        topic.metadata.refresh.interval.ms metadata.max.age.ms
        topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.fast.cnt
        topic.metadata.refresh.sparse topic.metadata.propagation.max.ms debug socket.timeout.ms
        socket.blocking.max.ms socket.send.buffer.bytes socket.receive.buffer.bytes
        socket.keepalive.enable socket.nagle.disable socket.max.fails broker.address.ttl
        broker.address.family connections.max.idle.ms reconnect.backoff.jitter.ms
        statistics.interval.ms stats_cb throttle_cb log.thread.name log.connection.close
        enable.random.seed api.version.request.timeout.ms retry.backoff.ms retry.backoff.max.ms
        enable.metrics.push
        """,
        "",
    ),
    (
        Use.OURS,
        "kafka-drain assigns partitions and joins no group; its groups' names are its own",
        """
        group.id group.instance.id partition.assignment.strategy session.timeout.ms
        heartbeat.interval.ms group.protocol.type group.protocol group.remote.assignor
        coordinator.query.interval.ms max.poll.interval.ms max.poll.records
        share.acknowledgement.mode
        """,
        "",
    ),
    (
        Use.OURS,
        "an archive's receipts and checkpoint hold its position: nothing is committed for it",
        """
        enable.auto.commit auto.commit.enable auto.commit.interval.ms enable.auto.offset.store
        auto.offset.reset offset.store.method offset.store.path offset.store.sync.interval.ms
        on_commit
        """,
        "",
    ),
    (
        Use.OURS,
        "a pipeline decides it for its drain, and a proof always reads as the drain did",
        "isolation.level",
        "set kafka.isolation.level in the pipeline's source_options; it is read_committed by "
        "default",
    ),
    (
        Use.OURS,
        "sized for what is read: a few offsets, or a whole partition",
        """
        queued.min.messages queued.max.messages.kbytes fetch.wait.max.ms fetch.queue.backoff.ms
        fetch.message.max.bytes max.partition.fetch.bytes fetch.max.bytes fetch.min.bytes
        fetch.error.backoff.ms receive.message.max.bytes check.crcs enable.partition.eof
        consume.callback.max.messages
        """,
        "",
    ),
    (
        Use.OURS,
        "records are sent in a transaction, once and in order, to the planned partition",
        """
        transactional.id transaction.timeout.ms enable.idempotence enable.gapless.guarantee
        max.in.flight.requests.per.connection max.in.flight message.send.max.retries retries
        request.required.acks acks request.timeout.ms message.timeout.ms delivery.timeout.ms
        queuing.strategy partitioner sticky.partitioning.linger.ms delivery.report.only.error
        produce.offset.report on_delivery
        """,
        "",
    ),
    (
        Use.OURS,
        "sized for a republish; the broker decides what is too large",
        """
        message.max.bytes message.copy.max.bytes queue.buffering.max.messages
        queue.buffering.max.kbytes queue.buffering.max.ms linger.ms
        queue.buffering.backpressure.threshold compression.codec compression.type
        compression.level batch.num.messages batch.size
        """,
        "",
    ),
    (
        Use.OURS,
        "kafka-drain reports errors itself, and creates no topic by asking for it",
        "error_cb log_level log.queue enabled_events allow.auto.create.topics",
        "",
    ),
    (
        Use.OURS,
        "every topic of the cluster is seen, and brokers are asked for their versions",
        """
        topic.blacklist api.version.request api.version.fallback.ms broker.version.fallback
        internal.termination.signal
        """,
        "",
    ),
    (
        Use.OURS,
        "a Schema Registry has a connection of its own: values.registry_conn_id",
        """
        schema.registry.url basic.auth.credentials.source basic.auth.user.info
        schema.registry.basic.auth.user.info schema.registry.basic.auth.credentials.source
        """,
        "",
    ),
    (
        Use.REFUSED,
        "it loads native code into the task, which could change what is read and sent; leave it "
        "out",
        "plugin.library.paths ssl.engine.location ssl.engine.id",
        "",
    ),
    (
        Use.REFUSED,
        "it is a shell command, which a connection can't name; leave it out: kinit runs with "
        "sasl.kerberos.principal and sasl.kerberos.keytab",
        "sasl.kerberos.kinit.cmd",
        "",
    ),
    (
        Use.REFUSED,
        "it replaces the cluster by a simulated one, so that what is sent is lost; leave it out",
        "test.mock.num.brokers test.mock.broker.rtt",
        "",
    ),
    (
        Use.REFUSED,
        "it is a pointer in C, which can't be set from Python; leave it out",
        """
        log_cb background_event_cb socket_cb connect_cb closesocket_cb open_cb resolve_cb opaque
        default_topic_conf default.topic.config logger ssl_key ssl_certificate ssl_ca
        ssl_engine_callback_data ssl.certificate.verify_cb oauthbearer_token_refresh_cb
        interceptors consume_cb rebalance_cb offset_commit_cb dr_cb dr_msg_cb partitioner_cb
        msg_order_cmp
        """,
        "",
    ),
    (
        Use.REFUSED,
        "it is a setting of Java's client; give librdkafka's sasl.username and sasl.password, "
        "which are translated for Java",
        "sasl.jaas.config",
        "",
    ),
    (
        Use.REFUSED,
        "it is a setting of Java's client; give librdkafka's ssl.ca.location, a PEM file, which "
        "is translated for Java",
        "ssl.truststore.location ssl.truststore.password ssl.truststore.type",
        "",
    ),
    (
        Use.REFUSED,
        "it is a setting of Java's client; which login Java uses follows from sasl.mechanism",
        "sasl.login.callback.handler.class sasl.client.callback.handler.class",
        "",
    ),
)

TABLE: dict[str, Setting] = {
    name: Setting(use, why, warning) for use, why, names, warning in _ROWS for name in names.split()
}

#: Settings that are passed to kafka-drain's own clients.
PASSED = frozenset(
    name for name, found in TABLE.items() if found.use in (Use.PASSED, Use.TRANSLATED)
)

#: Python functions: in a connection they are dotted paths.
CALLBACKS = ("oauth_cb", "stats_cb", "throttle_cb")
