"""What users may import: names that go away only after a deprecation (CONTRIBUTING)."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import kafka_drain
from kafka_drain import errors
from kafka_drain.config.pipeline import Pipeline
from tests.tables import each_of

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (ROOT / "plugins", ROOT / "spark_jobs")

#: Read from the sources: to import them all takes Airflow, pyiceberg and pyspark.
PUBLIC = {
    "kafka_drain": """
        ArchiveError AuthenticationError AuthorizationError CheckpointError ConfigError
        CutOverError DataFileError DataLossError DeliveryError EvidenceError GroupError
        GroupInUseError KafkaDrainError KafkaUnavailableError KeyUnavailableError
        KmsUnavailableError LagError LockedError MachineError ManifestInvalidError
        NotSealedError NotWritableError OpenTransactionError Pipeline PlanChangedError
        ProgressError RegistryUnavailableError SourceRecordError SparkJobError StoreUnavailableError
        SupersededError TerminalError TopicError TransientError VerifyError __version__
    """,
    "kafka_drain_airflow": """
        Approval CheckDecodingOperator DrillOperator EraseOperator KafkaDrainGroupOperator
        KafkaDrainOperator
        MaintainOperator Pipeline PreflightOperator RegisterTableOperator ReprocessOperator
        RepublishToKafkaOperator RestoreSchemasOperator ValidateManifestOperator WatchOperator
        archive_asset archive_uri create_dags create_group_dags create_task_group create_watch_dag
    """,
    "kafka_drain.reading": "archive_dataset archive_paths sealed_paths segments_filter",
    "kafka_drain.iceberg": "Registration register_archive",
    "kafka_drain_spark.reader": "read_archive",
}
DOCUMENTED = [
    (module, name)
    for module, names in PUBLIC.items()
    for name in names.split()
    if name != "__version__"
]


@cache
def tree_of(module: str) -> ast.Module:
    """Return a module's syntax tree."""
    parts = Path(*module.split("."))
    places = [root / path for root in SOURCES for path in (parts / "__init__.py", f"{parts}.py")]
    return ast.parse(next(path for path in places if path.is_file()).read_text())


def exported(module: str) -> list[str]:
    """Return a module's `__all__`."""
    for node in tree_of(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise AssertionError(f"{module} has no __all__")


def docstring(module: str, name: str) -> str | None:
    """Return what a name's own docstring says, wherever the module has it from."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node)
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            assert node.module is not None
            return docstring(node.module, name)
    raise AssertionError(f"{module} doesn't define {name}")


@pytest.mark.parametrize("module", PUBLIC)
def test_exported_names(module: str) -> None:
    """A module's public names are these, no more and no less."""
    assert sorted(exported(module)) == sorted(PUBLIC[module].split())


@each_of("module, name", DOCUMENTED)
def test_exported_names_documented(module: str, name: str) -> None:
    """Each public name has a docstring."""
    assert docstring(module, name)


def test_errors_are_all_exported() -> None:
    """Each error that is raised on purpose can be imported from the package itself."""
    assert {*errors.__all__} == {*exported("kafka_drain")} - {"Pipeline", "__version__"}


@each_of("name", errors.__all__)
def test_lazy_name_is_the_one(name: str) -> None:
    """An error that the package exports is the class that is raised."""
    assert getattr(kafka_drain, name) is getattr(errors, name)


def test_lazy_pipeline_is_the_one() -> None:
    """The pipeline that the package exports is the one that operators take."""
    assert kafka_drain.Pipeline is Pipeline


def test_lazy_name_unknown() -> None:
    """A name that isn't exported is an AttributeError, so that submodules are found."""
    with pytest.raises(AttributeError, match="'kafka_drain' has no attribute 'Pipelin'"):
        getattr(kafka_drain, "Pipelin")  # noqa: B009 - a type checker would refuse the other way
    assert {*exported("kafka_drain")} <= {*dir(kafka_drain)}


def test_version_installed() -> None:
    """The version is that of the distribution."""
    assert kafka_drain.__version__ == importlib.metadata.version("kafka-drain")


def test_version_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were copied into a plugins folder are of no version, and say so."""

    def refuse(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", refuse)
    monkeypatch.delitem(vars(kafka_drain), "__version__", raising=False)

    assert kafka_drain.__version__ == "0+unknown"
    monkeypatch.delitem(vars(kafka_drain), "__version__")


def test_import_loads_nothing() -> None:
    """To import the package loads none of its modules; an error loads no library either."""
    told = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            "import sys; sys.path.insert(0, sys.argv[1]); before = {*sys.modules}\n"
            "import kafka_drain\n"
            "print(*sorted(m for m in {*sys.modules} - before if m.startswith('kafka_drain')))\n"
            "from kafka_drain import LockedError\n"
            "print(*sorted({m.partition('.')[0] for m in {*sys.modules} - before}\n"
            "    - sys.stdlib_module_names))",
            str(ROOT / "plugins"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert told.stdout.splitlines() == ["kafka_drain", "kafka_drain"]
