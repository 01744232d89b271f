"""The republish operator takes what the request has."""

from __future__ import annotations

import ast
from pathlib import Path

from kafka_drain.republish.planning.request import RepublishRequest

OPERATOR = Path(__file__).parents[3] / "plugins/kafka_drain_airflow/operators/republish.py"


def test_arguments_are_the_options() -> None:
    """Airflow reads a signature, and so do editors: it names each option, in their order."""
    [init] = (
        node
        for node in ast.walk(ast.parse(OPERATOR.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )

    names = [argument.arg for argument in init.args.kwonlyargs]
    assert names == [*RepublishRequest.model_fields]
    # What isn't given is what the request has as its default.
    defaults = {ast.unparse(default) for default in init.args.kw_defaults if default}
    assert defaults == {"None"}
