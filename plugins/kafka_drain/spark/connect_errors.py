"""What gRPC says of a Spark Connect server that doesn't accept a client. Opens nothing."""

from __future__ import annotations

from kafka_drain.spark.connect import TOKEN_VARIABLE

_HOW_TO_SET = f"set ${TOKEN_VARIABLE}, or the password of the Airflow connection"
_NO_TLS = (
    "doesn't speak TLS, which use_ssl and a token need; put a proxy with TLS in front of it, or "
    "leave both out"
)

#: What gRPC says of a connection that isn't accepted, and what that means.
_REFUSALS = {
    "CERTIFICATE_VERIFY_FAILED": (
        "doesn't have a trusted certificate; name a PEM file with its authority's certificate in "
        "the environment variable GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
    ),
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "handshake failed": _NO_TLS,
    "Handshake read failed": _NO_TLS,
    "StatusCode.UNAUTHENTICATED": f"refuses the token; {_HOW_TO_SET}",
    "StatusCode.PERMISSION_DENIED": f"refuses the token; {_HOW_TO_SET}",
}

#: What gRPC says of a server that isn't there, and what that means.
_AWAY = {
    "Connection refused": "it refuses connections",
    "errors resolving": "the host name isn't known",
    "hostname lookup": "the host name isn't known",
    "DNS resolution failed": "the host name isn't known",
    "Failed parsing HTTP/2": "what listens there doesn't speak gRPC",
    "StatusCode.UNIMPLEMENTED": "what listens there speaks gRPC, but isn't Spark",
    "Connection reset": "it closes each connection",
    "Socket closed": "it closes each connection",
}


def refusal(message: str) -> str | None:
    """Return what it means that a server doesn't accept a client; None for another error.

    Args:
        message: What gRPC says.
    """
    for said, means in _REFUSALS.items():
        if said in message:
            return f"the Spark Connect server {means}"
    return None


def absence(message: str) -> str | None:
    """Return what it means that no server answers; None if that isn't what gRPC says."""
    return next((means for said, means in _AWAY.items() if said in message), None)
