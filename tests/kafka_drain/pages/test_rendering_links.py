"""A report as a server shows it."""

from __future__ import annotations

import pytest

from kafka_drain.pages.rendering import with_links

EVIL = '"><script>'


@pytest.mark.parametrize("begin", ["<body>\n<main>", "<body>"])
def test_with_links(begin: str) -> None:
    """The way back comes first, and the document's name is a link, also in an older report."""
    page = f"<html>{begin}\n<h1>x</h1>as JSON: <code>r&#233;.json</code>."

    shown = with_links(page.encode(), "ré.json", "/j?a=1&b=2", "/back").decode()

    top = shown.index('<a href="/back">')
    assert shown.index(begin) < top < shown.index("<h1>")
    assert shown.count('<a href="/j?a=1&amp;b=2">') == 2
    assert 'JSON: <a href="/j?a=1&amp;b=2"><code>r&#233;.json</code></a>.' in shown


def test_with_links_escapes() -> None:
    """Addresses are text, whatever they contain."""
    assert b"<script>" not in with_links(b"<body>", EVIL, EVIL, EVIL)
