"""What holds for all pages: nothing unescaped, nothing loaded, one style and one script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from kafka_drain.pages import rendering
from kafka_drain.pages.rendering import coloured, render

TEMPLATES = Path(rendering.__file__).with_name("templates")


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.html")), ids=lambda path: path.name)
def test_templates_escape_everything(path: Path) -> None:
    """No template takes a value as HTML, styles a tag, or has a script of its own."""
    text = path.read_text(encoding="utf-8")

    assert not re.search(r"\|\s*safe|Markup|autoescape", text)
    assert not re.search(r"\s(style|on\w+)=", text)
    assert "<script>" not in text.replace("<script>{% include script_file %}</script>", "")


@pytest.mark.parametrize("name", ["page.css", "frame.js"])
def test_style_and_script_are_no_templates(name: str) -> None:
    """Style and script are in a page as they are in their files, and load nothing.

    In either of them, HTML would read a character in another way than in its text.
    """
    text = (TEMPLATES / name).read_text(encoding="utf-8")

    assert render(name) == text
    assert text.isascii()
    assert "</" not in text
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text)


def test_page_style_dark_twice() -> None:
    """Dark is the same by the system's choice and by that of a page around this one."""
    style = render("page.css")
    by_system, by_page = (
        style.split(rule + " {\n")[1].split("}")[0] for rule in (":root:not(.light)", ":root.dark")
    )

    assert "--page: #14171b" in by_system
    assert by_system == by_page


def test_render_without_a_value() -> None:
    """A value that a template names and nobody gives is an error, not a hole in the page."""
    with pytest.raises(UndefinedError, match="'report' is undefined"):
        render("report.html", title="t", verdict="v")


@pytest.mark.parametrize("colours", ["dark", "light"])
def test_coloured(colours: str) -> None:
    """A page takes the colours that it is told; without any it stays as it is."""
    page = b'<!DOCTYPE html>\n<html lang="en">\n<head>'

    assert f'<html lang="en" class="{colours}">'.encode() in coloured(page, colours)
    assert coloured(page, "") == page
