"""Sphinx builds the site from the repository's own Markdown: `make docs`.

The source folder is the repository, so that README, CONTRIBUTING and CHANGELOG are pages as they
are, and a link leads to the same place here as where the repository is browsed.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "plugins"), str(ROOT / "spark_jobs")]

# Airflow makes a home where it is imported; and nothing of who builds belongs into the pages.
os.environ["AIRFLOW_HOME"] = str(ROOT / "build" / "airflow")
os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "WARNING"
os.environ.pop("KAFKA_BOOTSTRAP_SERVERS", None)

project = "kafka-drain"
author = "the kafka-drain contributors"
release = version = version_of("kafka-drain")

root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md"]
# Nothing to look for there, and much to walk through.
exclude_patterns = [".*", "build", "dist", "benchmarks", "demo", "plugins", "spark_jobs", "tests"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
# Docstrings have Markdown's backticks.
default_role = "code"

html_theme = "furo"
html_title = "kafka-drain"
html_copy_source = False
html_show_sourcelink = False
# The first page is below docs/; whoever opens the folder comes to it.
html_extra_path = ["start"]


class FromCode(SphinxDirective):
    """A part of the reference, {from-code} and its name: `scripts.reference` writes it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the part's nodes."""
        # Airflow is imported for this, which only the build itself has to wait for.
        from scripts.reference import PARTS

        text = PARTS[self.arguments[0]]()
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> None:
    """Add what the pages use."""
    app.add_directive("from-code", FromCode)
