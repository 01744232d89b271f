"""Operators that send, replace or delete apply their plan only if told to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.airflow_program import answer_of

ASK = """
import json, sys, warnings
from kafka_drain_airflow import *
pipeline = Pipeline(name="p", topics=["t"], archive="/archive")
answers = {}
for case, (operator, arguments) in json.loads(sys.argv[1]).items():
    made = globals()[operator](task_id="task", pipeline=pipeline, **arguments)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        acts = made.applies()
    answers[case] = [acts, [str(w.message) for w in warned if w.category is DeprecationWarning]]
print(json.dumps(answers))
"""
REPUBLISH, MAINTAIN, REPROCESS = (
    "RepublishToKafkaOperator",
    "MaintainOperator",
    "ReprocessOperator",
)
#: By case: operator and arguments, whether it applies the plan, and the expected warning.
CASES: dict[str, tuple[str, dict[str, Any], bool, str]] = {
    "told": (REPUBLISH, {"apply": True}, True, ""),
    "told by a template": (REPUBLISH, {"apply": "True"}, True, ""),
    "told not to": (MAINTAIN, {"apply": False}, False, ""),
    # Until 0.4: a mirror that silently stopped sending would be noticed too late.
    "untold republish": (
        REPUBLISH,
        {},
        True,
        "applies its plan without apply set; from 0.4 on it won't: set it",
    ),
    "untold maintenance": (
        MAINTAIN,
        {},
        True,
        "applies its plan without apply set; from 0.4 on it won't: set it",
    ),
    "untold reprocess": (REPROCESS, {}, False, ""),
    "old": (REPROCESS, {"is_dry_run": False}, True, "dry_run will be removed in 0.4; set apply"),
    "old dry run": (
        REPUBLISH,
        {"is_dry_run": "true"},
        False,
        "dry_run will be removed in 0.4; set",
    ),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Whether each case applies its plan, and its warnings."""
    asked = {case: (operator, arguments) for case, (operator, arguments, *_) in CASES.items()}
    home = tmp_path_factory.mktemp("airflow")
    return answer_of(ASK, json.dumps(asked), home=home)


@pytest.mark.parametrize("case", CASES)
def test_applies(case: str, answers: Any) -> None:
    """An operator applies its plan if `apply` says so; older spellings work, with a warning."""
    operator, _, acts, warning = CASES[case]
    found, warned = answers[case]

    assert found is acts
    assert [text.startswith(f"{operator}: {warning}") for text in warned] == [True] * bool(warning)
