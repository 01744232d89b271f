"""Functions that a connection names as its `oauth_cb`: they ask the tests' provider for a token.

Another process imports them too, so what they need is in the environment.
"""

from __future__ import annotations

import os
import time

import requests

#: How often this process was asked for a token.
asked: list[float] = []


def token(_config: str) -> tuple[str, float]:
    """Return a token that is valid for an hour."""
    return _new(), time.time() + 3600


def short_lived_token(_config: str) -> tuple[str, float]:
    """Return a token that the client has to replace after some seconds."""
    asked.append(time.time())
    return _new(), time.time() + 3


def refusing(_config: str) -> tuple[str, float]:
    """Fail, as a vault does that is closed."""
    raise RuntimeError("the vault is closed")


def unsigned(_config: str) -> tuple[str, float]:
    """Return what is no token of the provider."""
    return "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ1c2VyIn0.", time.time() + 3600


def damaged(_config: str) -> tuple[str, float]:
    """Return a token of the provider with another signature.

    Its first character differs: of the last one, four bits mean nothing.
    """
    content, _, signature = _new().rpartition(".")
    other = "B" if signature[0] == "A" else "A"
    return f"{content}.{other}{signature[1:]}", time.time() + 3600


def _new() -> str:
    user, password = os.environ["TOKENS_USER"], os.environ["TOKENS_PASSWORD"]
    answer = requests.post(os.environ["TOKENS_URL"], auth=(user, password), timeout=10)
    answer.raise_for_status()
    return str(answer.json()["access_token"])
