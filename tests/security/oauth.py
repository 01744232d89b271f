"""A provider of OpenID Connect tokens on this machine: one endpoint, one client, one key."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from kafka_drain.storage.loopback import JsonHandler, loopback

__all__ = ["TokenProvider", "token_provider"]

_KEY_ID = "tests"
_LIFETIME_SECONDS = 3600


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _number(value: int) -> str:
    return _encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@dataclass(frozen=True)
class TokenProvider:
    """Where tokens come from, and what they are checked with.

    Attributes:
        url: The token endpoint.
        keys: File with the public key, as JSON Web Key Set.
    """

    url: str
    keys: Path


@contextmanager
def token_provider(folder: Path, client: str, secret: str) -> Iterator[TokenProvider]:
    """Serve tokens for one client, until the end of the block."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    numbers = key.public_key().public_numbers()
    public = {"kty": "RSA", "kid": _KEY_ID, "use": "sig", "alg": "RS256"}
    public |= {"n": _number(numbers.n), "e": _number(numbers.e)}
    keys = folder / "jwks.json"
    keys.write_text(json.dumps({"keys": [public]}))
    expected = "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode()

    class Endpoint(JsonHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Authorization") != expected:
                self.answer(401, {"error": "invalid_client"})
                return
            token = _signed(key, client)
            answer = {"access_token": token, "token_type": "Bearer"}
            self.answer(200, answer | {"expires_in": _LIFETIME_SECONDS})

    with loopback(Endpoint) as address:
        yield TokenProvider(f"{address}/token", keys)


def _signed(key: rsa.RSAPrivateKey, subject: str) -> str:
    now = int(time.time())
    header = {"alg": "RS256", "kid": _KEY_ID, "typ": "JWT"}
    claims = {"sub": subject, "iss": "tests", "aud": "kafka", "scope": "kafka"}
    claims |= {"iat": now, "exp": now + _LIFETIME_SECONDS}  # type: ignore[dict-item]
    parts = ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
    signature = key.sign(parts.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{parts}.{_encoded(signature)}"
