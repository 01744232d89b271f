"""Render pages from the templates in `templates/`. Opens nothing but those.

A page is one file that loads nothing else: style and script are inline. All values are escaped when
they are inserted, because archives, Kafka and users choose names.
"""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from kafka_drain.pages.humanize import counts_text, many, number_text, size_text, time_text
from kafka_drain.progress import duration_text

_ENVIRONMENT = Environment(
    loader=PackageLoader("kafka_drain.pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.filters |= {
    "counts": counts_text,
    "duration": duration_text,
    "many": many,
    "number": number_text,
    "size": size_text,
    "time": time_text,
}


def render(template: str, **values: object) -> str:
    """Return a template rendered with the given values, in ASCII.

    Args:
        template: File name of the template.
        values: The template's variables.
    """
    text = _ENVIRONMENT.get_template(template).render(values)
    # A worker may have any locale, and names in an archive may not be valid text.
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def coloured(content: bytes, colours: str) -> bytes:
    """Return a page fixed to `dark` or `light`; if empty, it follows the system's setting."""
    mark = f'<html lang="en" class="{colours}">' if colours else '<html lang="en">'
    return content.replace(b'<html lang="en">', mark.encode(), 1)
