"""The documentation names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_drain.cli import COMMANDS
from kafka_drain.findings import Reason
from kafka_drain.gap_reasons import GapReason
from kafka_drain.pipeline import Pipeline
from kafka_drain.sink_options import _COMMON, _PER_FORMAT, COMPRESSIONS
from kafka_drain.source_options import DEFAULTS, OPTIONS
from kafka_drain.spark_conf import _KAFKA_CACHES

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
SUPPLY_CHAIN = (ROOT / "docs" / "supply-chain.md").read_text()
VALIDATION = (ROOT / "docs" / "validation.md").read_text()


def test_configuration_names_every_key() -> None:
    """Each key of a pipeline has its row."""
    rows = set(re.findall(r"^\| `(\w+)` \|", CONFIGURATION, flags=re.M))

    assert rows >= set(Pipeline.model_fields)


@pytest.mark.parametrize(
    "name",
    [*OPTIONS, *DEFAULTS, *_KAFKA_CACHES, *_COMMON, *(n for f in _PER_FORMAT.values() for n in f)],
)
def test_configuration_names_every_option(name: str) -> None:
    """Each option that is checked by name is documented."""
    assert f"`{name}`" in CONFIGURATION


def test_configuration_names_every_compression() -> None:
    """Each compression of each format is documented."""
    for compressions in COMPRESSIONS.values():
        for compression in compressions:
            assert compression in CONFIGURATION


@pytest.mark.parametrize("name", ["kafka.max.poll.records", "kafka.fetch.max.bytes"])
def test_configuration_says_the_defaults(name: str) -> None:
    """The default that is documented is the one that is set."""
    assert f"| `{name}` | `{DEFAULTS[name]}` |" in CONFIGURATION


def test_validation_names_every_reason() -> None:
    """Each reason code is documented with its severity, meaning and remedy."""
    for reason in Reason:
        row = f"| `{reason}` | {reason.severity} | {reason.meaning} | {reason.remedy} |"
        assert row in VALIDATION
    for gap in GapReason:
        assert f"| `{gap}` | {'yes' if gap.harmless else 'no'} | {gap.meaning} |" in VALIDATION


def test_readme_names_every_command() -> None:
    """Each command of kafka-drain is in the README, and no other."""
    named = set(re.findall(r"kafka-drain ([a-z-]+)", README))

    assert named == COMMANDS.keys()


def test_readme_names_verbs_that_exist() -> None:
    """Each `make` verb of the documents is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named: set[str] = set()
    for document in (README, (ROOT / "CONTRIBUTING.md").read_text(), SUPPLY_CHAIN):
        named |= set(re.findall(r"(?:`|^)make ([a-z0-9-]+)", document, flags=re.M))

    assert named
    assert named <= targets


@pytest.mark.parametrize(
    "name",
    ["README.md", "CONTRIBUTING.md", "docs/docker.md", "docs/reading.md", "docs/supply-chain.md"],
)
def test_links_lead_somewhere(name: str) -> None:
    """Relative links lead to files of the repository."""
    document = ROOT / name
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target
