"""The republish operator accepts all options of a republish request."""

from __future__ import annotations

import ast
from pathlib import Path

from kafka_drain.republish.planning.request import RepublishRequest

OPERATOR = Path(__file__).parents[3] / "plugins/kafka_drain_airflow/operators/republish.py"


def test_arguments_are_the_options() -> None:
    """The signature, which Airflow and editors read, lists all options in order."""
    [init] = (
        node
        for node in ast.walk(ast.parse(OPERATOR.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )

    names = [argument.arg for argument in init.args.kwonlyargs]
    assert names == [*RepublishRequest.model_fields]
    # Arguments that aren't given have the request's default.
    defaults = {ast.unparse(default) for default in init.args.kw_defaults if default}
    assert defaults == {"None"}
