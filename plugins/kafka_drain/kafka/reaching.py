"""Why no broker answers: asked at the addresses themselves, below Kafka's clients.

Clients go on trying, and report only that nobody answered in time. What an address says to a
connection, to a request of Kafka's and to a TLS handshake tells more, within milliseconds.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from kafka_drain.background import Background

#: Time that an address has for each step: to accept a connection, and to answer on it.
STEP_SECONDS = 3.0

#: Time for an answer in plaintext where nobody answers TLS.
_PLAIN_SECONDS = 1.0

#: Number of addresses that are looked at: any of them would do for a client.
_MOST = 10

#: Kafka's first request on a connection, ApiVersions, in its first version: key, version, id, and
#: the name of the client (https://kafka.apache.org/protocol). The id are two ends of lines: servers
#: that read lines, such as web servers, answer too.
_ID = int.from_bytes(b"\r\n\r\n", "big")
_NAME = b"kafka-drain"
_BODY = struct.pack(f">hhih{len(_NAME)}s", 18, 0, _ID, len(_NAME), _NAME)
_REQUEST = struct.pack(">i", len(_BODY)) + _BODY

#: The first bytes of a TLS alert, and of a TLS handshake (RFC 8446, section 5.1).
_OF_TLS = (b"\x15\x03", b"\x16\x03")


class AddressAnswer(Enum):
    """An address's answer."""

    ANSWERS = "answers"
    REFUSED = "refuses connections"
    UNKNOWN_HOST = "has a host name that isn't known"
    UNREACHABLE = "can't be reached"
    NO_CONNECTION = "doesn't accept a connection"
    SILENT = "accepts connections, but doesn't answer"
    CLOSES = "closes each connection before it answers"
    TLS = "speaks TLS"
    PLAINTEXT = "doesn't speak TLS"
    OTHER = "isn't Kafka: it answers something else"


#: Answers that waiting doesn't change.
_LASTING = frozenset(
    {AddressAnswer.UNKNOWN_HOST, AddressAnswer.TLS, AddressAnswer.PLAINTEXT, AddressAnswer.OTHER}
)

_WITH_TLS = {"plaintext": "SSL", "sasl_plaintext": "SASL_SSL"}
_WITHOUT_TLS = {tls.lower(): plain.upper() for plain, tls in _WITH_TLS.items()}

_CHECK_SERVERS = (
    "check that the broker is running, and that bootstrap.servers is correct and reachable from "
    "here"
)


@dataclass(frozen=True)
class Reached:
    """The result for an address.

    Attributes:
        address: Its host and port.
        detail: The system's own words; empty if there are none.
    """

    address: str
    answer: AddressAnswer
    detail: str = ""

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.address} {self.answer.value}" + (f" ({self.detail})" if self.detail else "")


def is_lasting(reached: Sequence[Reached]) -> bool:
    """Return whether waiting can't help at any of the addresses."""
    return bool(reached) and all(each.answer in _LASTING for each in reached)


def reasons(reached: Sequence[Reached]) -> str:
    """Return why nobody answered, as text; empty if the addresses themselves do answer."""
    if any(each.answer is AddressAnswer.ANSWERS for each in reached):
        return ""
    return ", ".join(map(str, reached))


def remedy(reached: Sequence[Reached], protocol: str, *, logs_in: bool = False) -> str:
    """Return the remedy.

    Args:
        reached: The results for the addresses.
        protocol: The connection's security.protocol.
        logs_in: Whether the connection has a login.
    """
    said, protocol = {each.answer for each in reached}, protocol.lower()
    found = []
    if AddressAnswer.TLS in said and protocol in _WITH_TLS:
        with_tls = "SASL_SSL" if logs_in else _WITH_TLS[protocol]
        found.append(
            f"set security.protocol to {with_tls} in the Kafka connection, which has "
            f"{protocol.upper()}, or give the port of the listener without TLS"
        )
    if AddressAnswer.PLAINTEXT in said and protocol in _WITHOUT_TLS:
        found.append(
            f"set security.protocol to {_WITHOUT_TLS[protocol]} in the Kafka connection, which has "
            f"{protocol.upper()}, or give the port of the listener with TLS"
        )
    if said & {AddressAnswer.UNKNOWN_HOST, AddressAnswer.OTHER}:
        found.append("correct bootstrap.servers")
    if not said <= _LASTING:
        # Others may answer again.
        found.append(_CHECK_SERVERS)
    return "; ".join(found) or _CHECK_SERVERS


def reach(servers: str, protocol: str, step_seconds: float = STEP_SECONDS) -> list[Reached]:
    """Connect to addresses as Kafka's clients do, all at once; sends no login.

    Args:
        servers: Addresses as HOST:PORT, separated by commas.
        protocol: The connection's security.protocol, which says whether to speak TLS.
        step_seconds: Longest duration of a step; looking up a host's name may take longer.
    """
    addresses = [address.strip() for address in servers.split(",")][:_MOST]
    with_tls = protocol.lower() in _WITHOUT_TLS
    asked = [Background(partial(_reach, address, with_tls, step_seconds)) for address in addresses]
    return [each.wait() for each in asked]


def speaks_tls(host: str, port: int, seconds: float = STEP_SECONDS) -> bool:
    """Return whether an address answers a TLS handshake."""
    try:
        return _shake((host, port), seconds) is AddressAnswer.TLS
    except OSError:
        return False


def _reach(address: str, with_tls: bool, seconds: float) -> Reached:
    host, _, port = address.rpartition(":")
    place = (host.strip("[]"), int(port))
    try:
        answer = _over_tls(place, seconds) if with_tls else _in_plaintext(place, seconds)
    except socket.gaierror as error:
        passes = error.errno == socket.EAI_AGAIN
        answer = AddressAnswer.UNREACHABLE if passes else AddressAnswer.UNKNOWN_HOST
        return Reached(address, answer, error.strerror or "")
    except UnicodeError:
        # A label of the name is empty or too long.
        return Reached(address, AddressAnswer.UNKNOWN_HOST)
    except ConnectionRefusedError:
        return Reached(address, AddressAnswer.REFUSED)
    except TimeoutError:
        return Reached(address, AddressAnswer.NO_CONNECTION, f"within {seconds:g} s")
    except OSError as error:
        return Reached(address, AddressAnswer.UNREACHABLE, error.strerror or str(error))
    return Reached(address, answer)


def _in_plaintext(place: tuple[str, int], seconds: float) -> AddressAnswer:
    """Return an address's answer to a request without TLS."""
    said = _asked(place, seconds)
    if said is AddressAnswer.CLOSES and _shake(place, seconds) is AddressAnswer.TLS:
        return AddressAnswer.TLS
    return said


def _over_tls(place: tuple[str, int], seconds: float) -> AddressAnswer:
    """Return an address's answer to a client that speaks TLS."""
    said = _shake(place, seconds)
    if said is AddressAnswer.TLS:
        # A broker may want a certificate first, and not answer.
        is_other = _asked(place, seconds, with_tls=True) is AddressAnswer.OTHER
        return AddressAnswer.OTHER if is_other else AddressAnswer.ANSWERS
    # Only an answer in plaintext shows that it doesn't speak TLS: this machine's own library may
    # refuse what the client's accepts, such as old ciphers.
    plain = _asked(place, min(seconds, _PLAIN_SECONDS) if said is AddressAnswer.SILENT else seconds)
    if plain is AddressAnswer.ANSWERS:
        return AddressAnswer.PLAINTEXT
    if plain is AddressAnswer.OTHER:
        return plain
    return AddressAnswer.ANSWERS if said is AddressAnswer.OTHER else said


def _asked(place: tuple[str, int], seconds: float, *, with_tls: bool = False) -> AddressAnswer:
    """Ask a broker for the requests that it understands.

    Raises:
        OSError: When there is no connection.
    """
    with socket.create_connection(place, seconds) as connection:
        try:
            if with_tls:
                with _context().wrap_socket(connection, server_hostname=place[0]) as wrapped:
                    said = _answer(wrapped)
            else:
                said = _answer(connection)
        except TimeoutError:
            return AddressAnswer.SILENT
        except OSError:
            return AddressAnswer.CLOSES
    if said.startswith(_OF_TLS):
        return AddressAnswer.TLS
    if len(said) < 8:
        return AddressAnswer.OTHER if said else AddressAnswer.CLOSES
    return AddressAnswer.ANSWERS if struct.unpack(">i", said[4:])[0] == _ID else AddressAnswer.OTHER


def _answer(connection: socket.socket) -> bytes:
    """Return the beginning of the answer to the request: its size and its id."""
    connection.sendall(_REQUEST)
    said = b""
    while len(said) < 8 and (more := connection.recv(8 - len(said))):
        said += more
    return said


def _shake(place: tuple[str, int], seconds: float) -> AddressAnswer:
    """Begin TLS; whose certificate it is doesn't matter here.

    Raises:
        OSError: When there is no connection.
    """
    with socket.create_connection(place, seconds) as connection:
        try:
            _context().wrap_socket(connection, server_hostname=place[0]).close()
        except TimeoutError:
            return AddressAnswer.SILENT
        except ssl.SSLEOFError:
            return AddressAnswer.CLOSES
        except ssl.SSLError as error:
            # An alert is an answer of somebody who speaks TLS, such as one who wants a certificate.
            return AddressAnswer.TLS if "ALERT" in (error.reason or "") else AddressAnswer.OTHER
        except OSError:
            return AddressAnswer.CLOSES
    return AddressAnswer.TLS


def _context() -> ssl.SSLContext:
    """Return a context that begins TLS with anybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
