"""A user's own function: found, identified, and held to its contract."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_drain.errors import ConfigError, SourceRecordError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.changing.function import call_function, find_function, load_function
from kafka_drain.republish.changing.function_id import FunctionId
from tests.kafka_drain.data_files.test_rows import batch_of

HERE = "tests.kafka_drain.republish.changing.user_functions"
TP = TopicPartition("t", 0)
BATCH = batch_of([(b"k", b"secret %d" % n, None, n, 2 * n + 1) for n in range(4)])


def test_find_function() -> None:
    """A function is identified by its module's source and Python, and its folder is told."""
    found = find_function(f"{HERE}:nothing")

    source = Path(__file__).with_name("user_functions.py")
    assert found.id == FunctionId(
        f"{HERE}:nothing",
        hashlib.sha256(source.read_bytes()).hexdigest(),
        f"{sys.version_info[0]}.{sys.version_info[1]}",
    )
    assert Path(found.folder) == Path(__file__).parents[4]
    assert FunctionId.from_dict(found.id.to_dict()) == found.id


def test_find_function_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process finds a module, or a package, by the folder that it is told."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "rules_in_a_file.py").write_text("def f(batch): return batch\n")
    (tmp_path / "rules_in_a_package").mkdir()
    (tmp_path / "rules_in_a_package" / "__init__.py").write_text("def f(batch): return batch\n")
    for module in ("rules_in_a_file", "rules_in_a_package"):
        found = find_function(f"{module}:f", str(tmp_path))
        assert Path(found.folder) == tmp_path
        assert load_function(found.id, "").call is found.call


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("f", "expected|accepted: a function as module:function"),
        ("a:b:c", "accepted: a function as module:function"),
        ("a.b.:c", "accepted: a function as module:function"),
        ("no_such_module_here:f", "can't be imported .ModuleNotFoundError"),
        (f"{HERE}:none", "has no function none"),
        (f"{HERE}:not_a_function", "has no function not_a_function"),
        ("sys:exit", "has no source file"),
    ],
)
def test_find_function_refused(name: str, said: str) -> None:
    """What isn't a function with a source is refused in words."""
    with pytest.raises(ConfigError, match=said):
        find_function(name)


@pytest.mark.parametrize("other", [{"sha256": "0" * 64}, {"python": "3.0"}])
def test_load_function_other(other: dict[str, str]) -> None:
    """Another source or Python than the planned one is refused."""
    planned = replace(find_function(f"{HERE}:nothing").id, **other)
    with pytest.raises(ConfigError, match="Put the planned one back to resume, or start a new run"):
        load_function(planned, "")


CONTRACT = {
    "other_offsets": "that it wasn't given, or not in their order, or twice",
    "reversed_order": "that it wasn't given, or not in their order, or twice",
    "twice": "that it wasn't given, or not in their order, or twice",
    "other_times": "changed the column timestamp",
    "a_table": "returned a Table .*expected a pyarrow.RecordBatch",
    "fewer_columns": "returned other columns .*: key large_binary, value large_binary, offset",
    "header_with_nul": "whose name is null or has a NUL",
}


@pytest.mark.parametrize("name", CONTRACT)
def test_call_function_contract(name: str) -> None:
    """What breaks the contract is refused, naming the function and the place, not a value."""
    with pytest.raises(ConfigError, match=CONTRACT[name]) as refused:
        call_function(find_function(f"{HERE}:{name}"), BATCH, TP)
    assert "of t-0" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("failing", "raised KeyError for the record at offset 5 of t-0; its message isn't shown"),
        ("failing_together", "raised ValueError for 4 records from offset 1 of t-0, but for none"),
        (
            "leaving",
            "left by SystemExit for the record at offset 5 of t-0; its message isn.t shown",
        ),
    ],
)
def test_call_function_fails(name: str, said: str) -> None:
    """An error names the record that it is raised for, and nothing that the record holds."""
    with pytest.raises(SourceRecordError, match=said) as failed:
        call_function(find_function(f"{HERE}:{name}"), BATCH, TP)
    assert "secret" not in str(failed.value)
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__


def test_call_function_keeps() -> None:
    """The records that are kept come as they were, and as they are."""
    batch = batch_of([(b"k", b"a", None, 0, 3), (b"k", None, None, 0, 4), (b"k", b"b", None, 0, 9)])
    kept, result = call_function(find_function(f"{HERE}:tombstones_out"), batch, TP)

    assert kept["value"].to_pylist() == [b"a", b"b"]
    assert result["value"].to_pylist() == [b"A", b"B"]
    assert result["offset"].to_pylist() == [3, 9]
    assert call_function(find_function(f"{HERE}:nothing"), batch, TP)[1].num_rows == 0
