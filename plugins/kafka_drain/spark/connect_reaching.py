"""Ask a Spark Connect server whether it answers, and say why it doesn't.

pyspark's client retries for a minute without a word, and waits for ever for a server that hangs.
"""

from __future__ import annotations

import os
from typing import Any
from uuid import uuid4

from kafka_drain.errors import ConfigError, KafkaDrainError
from kafka_drain.kafka.reaching import speaks_tls
from kafka_drain.spark.connect import USER, ConnectAddress, absence, refusal
from kafka_drain.spark.engine import NoServerError
from kafka_drain.spark.place import DriverPlace, SparkConnection

#: Time that a server has to answer.
ANSWER_SECONDS = 5.0

_SERVICE = "/spark.connect.SparkConnectService/"

#: Parameters of an address that pyspark doesn't send to the server.
_NOT_SENT = {"use_ssl", "user_id", "user_agent", "grpc_max_message_size"}

_HOW_TO_START = "start one with `kafka-drain spark-server`, or correct the master"


def unreached(address: ConnectAddress, message: str, seconds: float) -> KafkaDrainError:
    """Return the error for a server that doesn't answer, or not this client.

    Args:
        message: Message of the gRPC error.
        seconds: The time that it had.
    """
    if refused := refusal(message):
        return ConfigError(f"{refused} ({address})")
    if "DEADLINE_EXCEEDED" in message:
        why = f"it accepts connections, but doesn't answer within {seconds:g} s"
    else:
        why = absence(message) or message
    return NoServerError(f"no Spark Connect server answers at {address}: {why}; {_HOW_TO_START}")


def look_at_server(
    address: ConnectAddress, token: str = "", seconds: float = ANSWER_SECONDS
) -> KafkaDrainError | None:
    """Return why a server doesn't answer this client; None if it does.

    Asks for a setting as a session that is released at once.

    Args:
        token: The token of the connection.
        seconds: Longest wait for an answer.
    """
    # Its lines are about connections that fail, which are errors here.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Not at the top: only who uses a Spark Connect server has it.
    import grpc  # type: ignore[import-untyped]

    sent = [(name, value) for name, value in address.parameters.items() if name not in _NOT_SENT]
    channel = _channel(grpc, address, token)
    try:
        for method, request in _requests(str(uuid4())):
            ask = channel.unary_unary(_SERVICE + method)
            ask(request, timeout=seconds, metadata=sent)
    except grpc.RpcError as error:
        said = f"{error.code()} {error.details()}"
        found = unreached(address, said, seconds)
        in_plaintext = not (token or address.uses_tls)
        if in_plaintext and "closes" in str(found) and speaks_tls(address.host, address.port):
            return ConfigError(
                f"the Spark Connect server at {address} speaks TLS; add /;use_ssl=true to the "
                "master, or use_ssl to the extra of the Airflow connection"
            )
        return found
    finally:
        channel.close()
    return None


def require_server(connection: SparkConnection) -> None:
    """Require that a connection's Spark Connect server answers; nothing for another master.

    Raises:
        NoServerError: When it doesn't answer.
        ConfigError: When it refuses the token, or only one of both speaks TLS.
    """
    if connection.place is not DriverPlace.SERVER:
        return
    missed = look_at_server(ConnectAddress.parse(connection.master), connection.token)
    if missed is not None:
        raise missed


def _channel(grpc: Any, address: ConnectAddress, token: str) -> Any:
    """Open a connection as pyspark does (`DefaultChannelBuilder.toChannel`)."""
    place = f"{address.host}:{address.port}"
    if not token and not address.uses_tls:
        return grpc.insecure_channel(place)
    is_local = not address.uses_tls and address.host == "localhost"
    credentials = grpc.local_channel_credentials() if is_local else grpc.ssl_channel_credentials()
    if token:
        credentials = grpc.composite_channel_credentials(
            credentials, grpc.access_token_call_credentials(token)
        )
    return grpc.secure_channel(place, credentials)


def _requests(session: str) -> list[tuple[str, bytes]]:
    """Return requests as Spark's protocol has them (spark/connect/base.proto), by method.

    pyspark's classes for them take seconds to import.
    """
    who = _text(1, session) + _field(2, _text(1, USER))
    get_option = _field(4, _text(1, "spark.sql.session.timeZone"))
    return [("Config", who + _field(3, get_option)), ("ReleaseSession", who)]


def _text(number: int, value: str) -> bytes:
    return _field(number, value.encode())


def _field(number: int, value: bytes) -> bytes:
    """Encode a short field that has a length (Protocol Buffers, wire type 2)."""
    return bytes([number << 3 | 2, len(value)]) + value
