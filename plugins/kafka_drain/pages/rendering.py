"""Render pages from the templates in `templates/`. Opens nothing but those, and `vendor/`.

A page is one file that loads nothing else: style and script are inline. All values are escaped when
they are inserted, because archives, Kafka and users choose names.
"""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from kafka_drain.gaps import gaps_text
from kafka_drain.pages.humanize import many, number_text, size_text, time_text
from kafka_drain.progress import duration_text

_ENVIRONMENT = Environment(
    loader=PackageLoader("kafka_drain.pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_VENDOR = PackageLoader("kafka_drain.pages", "vendor")


def _vendored(name: str) -> Markup:
    """Return a file of somebody else as it is: `vendor/` has its licence, and tests its hash."""
    return Markup(_VENDOR.get_source(_ENVIRONMENT, name)[0])


_ENVIRONMENT.globals["vendored"] = cache(_vendored)
_ENVIRONMENT.filters |= {
    "gaps": gaps_text,
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
    return _ascii(text).decode("ascii")


def script(name: str) -> str:
    """Return the script of a page, as it is in it: `frame.js` or `charts.js`."""
    return render(name)


def with_links(content: bytes, document: str, address: str, back: str) -> bytes:
    """Return a report as a server shows it: with a way back, and with a link to its JSON.

    Args:
        content: The report's page, as a validation wrote it.
        document: Name of the JSON document beside it.
        address: Address of the JSON.
        back: Address of the archive's page.
    """
    link = f'<a href="{escape(address)}">'
    top = f'\n<p class="quiet"><a href="{escape(back)}">The archive</a>, {link}JSON</a></p>'
    name = escape(document)
    # Reports of earlier releases have no <main>.
    begin = "<main>" if b"<main>" in content else "<body>"
    for old, new in (
        (begin, f"{begin}{top}"),
        (f"JSON: <code>{name}</code>", f"JSON: {link}<code>{name}</code></a>"),
    ):
        content = content.replace(_ascii(old), _ascii(new), 1)
    return content


def _ascii(text: str) -> bytes:
    return text.encode("ascii", "xmlcharrefreplace")


def coloured(content: bytes, colours: str) -> bytes:
    """Return a page fixed to `dark` or `light`; if empty, it follows the system's setting."""
    mark = f'<html lang="en" class="{colours}">' if colours else '<html lang="en">'
    return content.replace(b'<html lang="en">', mark.encode(), 1)
