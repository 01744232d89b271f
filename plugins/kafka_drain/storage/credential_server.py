"""Give temporary AWS credentials to the processes of this machine, and renew them.

AWS's SDKs, for Python and for Java, ask an address in their environment for credentials, as they do
in a container, and ask again before these end. So a Spark job may run longer than they are valid.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TypeAlias

from kafka_drain.storage.loopback import JsonHandler, loopback

Credentials: TypeAlias = "tuple[str, str, str]"
"""Access key id, secret access key and session token."""

#: Time for which a process may use its credentials. botocore renews those that end within 15
#: minutes, so ours last a minute longer, and are asked for again every minute.
LEASE = timedelta(minutes=16)

#: Variables that an SDK would follow before it asks the server.
STRONGER = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
)


@contextmanager
def credential_server(current: Callable[[], Credentials]) -> Iterator[dict[str, str]]:
    """Serve credentials on this machine's loopback address during the body.

    Args:
        current: Returns credentials that are valid for a quarter of an hour; called in threads.

    Yields:
        The environment variables with which a process asks; they include a secret. Those in
        `STRONGER` must not be set.
    """
    token = secrets.token_urlsafe(32)

    class Endpoint(JsonHandler):
        def do_GET(self) -> None:
            given = self.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), token.encode()):
                self.answer(403, {"message": "wrong token"})
                return
            try:
                key, secret, session = current()
            except Exception as error:
                # An SDK reports this text.
                self.answer(500, {"message": f"{type(error).__name__}: {error}"})
                return
            ends = datetime.now(timezone.utc) + LEASE
            document = {"AccessKeyId": key, "SecretAccessKey": secret, "Token": session}
            self.answer(200, document | {"Expiration": f"{ends:%Y-%m-%dT%H:%M:%SZ}"})

    with loopback(Endpoint) as address:
        yield {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{address}/",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": token,
            # Profiles come before it too.
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_CONFIG_FILE": "/dev/null",
        }
