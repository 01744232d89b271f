"""The documentation names what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafka_drain.archive.drill_status import DrillStatus
from kafka_drain.cli.main import GROUPS
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.sink_options import _COMMON, _PER_FORMAT, COMPRESSIONS
from kafka_drain.config.source_options import DEFAULTS, OPTIONS
from kafka_drain.config.spark_conf import _KAFKA_CACHES
from kafka_drain.spark.jars import fetch, lock
from kafka_drain_airflow.observability import metrics
from tests.documentation.blocks import DOCUMENTS
from tests.kafka_drain.archive.test_drill_status import NOW, drill
from tests.tables import each_of

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
AIRFLOW_UI = (ROOT / "docs" / "airflow-ui.md").read_text()
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()


def test_configuration_names_every_key() -> None:
    """Each key of a pipeline has its row, with its default; and no other."""
    keys = CONFIGURATION.partition("## Keys")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) ?\| ", keys, flags=re.M))

    assert rows.keys() == Pipeline.model_fields.keys()
    for name, field in Pipeline.model_fields.items():
        default = COMPRESSIONS["parquet"][0] if name == "compression" else field.default
        if field.is_required() or default is None:
            assert rows[name] == ""
        else:
            shown = default if isinstance(default, str) else json.dumps(default)
            assert rows[name] == f"`{shown}`"


@each_of(
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


def test_commands_page_lists_every_command() -> None:
    """Each command is in the page's list, in its group."""
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    listed: dict[str, list[str]] = {}
    for line in page.partition("```sh\n")[2].partition("```")[0].splitlines():
        if line.startswith("# "):
            listed[line.removeprefix("# ")] = []
        elif line:
            listed[next(reversed(listed))].append(line.split()[1])

    assert listed == {title: [*names] for title, names in GROUPS.items()}


def test_readme_is_short() -> None:
    """The README is read at once, and names the command that CI runs."""
    assert len(README.splitlines()) <= 130
    assert re.findall(r"^make (\w+)", README, flags=re.M) == ["demo", "test"]
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "make test"


@each_of("document", DOCUMENTS)
def test_links_lead_somewhere(document: Path) -> None:
    """Relative links lead to files of the repository, wherever it is browsed."""
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_metrics_page_names_every_metric() -> None:
    """Each name that operators send is in the table of metrics, and no other."""
    told: dict[str, float] = {}
    overview = dict.fromkeys(metrics._OVERVIEW, 1) | {
        "verdict": "complete",
        "expires_at": "2026-11-22T12:00:00+00:00",
        "validated_at": "2026-11-22T12:00:00+00:00",
        "drained_until": "2026-11-22T12:00:00+00:00",
        "gaps": {"<reason>": 1},
        "findings": {"<reason>": 1},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "_tell", lambda pipeline, gauges: told.update(gauges))
        metrics.tell_drain("any", dict.fromkeys(metrics._DRAIN, 1))
        metrics.tell_republish("any", dict.fromkeys(metrics._REPUBLISH, 1))
        metrics.tell_overview("any", overview, 1.0)
        metrics.tell_ready("any", is_ready=True)
        metrics.tell_drills("any", DrillStatus.of([drill(1)], None, NOW))
    section = AIRFLOW_UI.partition("## Metrics")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?`) \|", section, flags=re.M)

    assert {name.strip("`") for row in rows for name in row.split(", ")} == told.keys()


def test_engines_name_tests() -> None:
    """Each test that the table of engines names is there, and each cell names one or says none."""
    page = (ROOT / "docs" / "engines.md").read_text()
    table = page.partition("| job |")[2].partition("\n\n")[0]
    rows = [re.split(r" \| ", row.strip("| ")) for row in table.splitlines()[2:]]
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))

    assert len(rows) == 13
    for _, *cells in rows:
        assert len(cells) == 6
        for cell in cells:
            assert cell == "not run" or f"\ndef {cell.strip('`')}(" in sources, cell


@pytest.mark.parametrize(
    ("row", "artifact", "conf"),
    [
        ("Kafka connector", "spark-sql-kafka-0-10", fetch.CONNECTOR),
        ("its token provider", "spark-token-provider-kafka-0-10", fetch.CONNECTOR),
        ("Kafka's Java client", "kafka-clients", fetch.CONNECTOR),
        ("Avro", "spark-avro", fetch.CONNECTOR),
        ("S3: Hadoop's S3A", "hadoop-aws", fetch.S3),
    ],
)
def test_limits_name_the_jars(row: str, artifact: str, conf: str) -> None:
    """The table of what differs between versions of Spark has the versions of `jars.lock`."""
    table = (ROOT / "docs" / "limits.md").read_text().partition("<!-- jars -->\n")[2]
    heading, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.partition("<!-- end -->")[0].splitlines()
    )
    cells = {name: cells for name, *cells in rows}[row]
    locked = lock.parse_lock(lock.LOCK_FILE.read_text())

    assert len(rows) == 5
    assert len(heading) - 1 == len(fetch._FOR_SPARK)
    for spark, cell in zip(heading[1:], cells, strict=True):
        of_spark = fetch._FOR_SPARK[".".join(spark.removeprefix("Spark ").split(".")[:2])]
        paths = [jar.path for jar in locked[of_spark[conf]]] if conf in of_spark else []
        found = [path.split("/")[-2] for path in paths if f"/{artifact}" in path]
        assert found == ([] if cell.startswith("none") else [cell])
