"""How often, and after which time, an HTTP server that is unwell is asked again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from urllib3.util import Retry


#: What a server answers that is unwell or busy, and may answer otherwise soon.
UNWELL = (429, 500, 502, 503, 504)


def bounded_retries(tries: int, longest: float, **more: Any) -> Retry:
    """Return the retries of an HTTP request.

    Args:
        tries: Number of tries, with the first one.
        longest: Number of seconds to wait at most where the server asks for more (Retry-After): it
            may say an hour.
        more: Other arguments of urllib3's `Retry`.
    """
    from urllib3.util import Retry

    class Bounded(Retry):
        def get_retry_after(self, response: Any) -> float | None:
            asked = super().get_retry_after(response)
            return None if asked is None else min(asked, longest)

    return Bounded(
        total=tries - 1,
        backoff_factor=0.5,
        status_forcelist=UNWELL,
        raise_on_status=False,
        **more,
    )
