"""Render verified evidence as one self-contained HTML page.

Opens nothing but its template.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kafka_drain.pages.rendering import render

_TITLES = {
    "validation": "Validation",
    "republish": "Republish",
    "drill": "Drill",
    "cut-over": "Cut-over",
    "witness": "Witness",
    "rotation": "Change of keys",
}
#: Keys of a signed document that a person reads first, by kind.
_SHOWN = {
    "validation": ("verdict", "validated_at", "records", "offsets", "files", "bytes", "scope"),
    "republish": ("run", "delivery", "records", "started_at", "finished_at", "cluster_id"),
    "drill": ("verdict", "sample", "records", "rto_seconds", "rpo_seconds", "started_at"),
    "cut-over": ("run_name", "step", "verdict", "problems", "records", "lag", "finished_at"),
    "witness": ("previous",),
    "rotation": ("key",),
}


def said_of(verified: Mapping[str, Any]) -> dict[str, Any]:
    """Return the most important values of a signed document.

    Args:
        verified: The result of `Verified.to_dict`.
    """
    document = verified["document"]
    said = {key: document[key] for key in _SHOWN[verified["kind"]] if document.get(key) is not None}
    if erasures := document.get("erasures"):
        said["erased"] = [
            f"{row['records']:,} records on request {row['request']} of {row['by']}"
            for row in erasures
        ]
    return said


def evidence_page(verified: Mapping[str, Any]) -> str:
    """Return verified evidence as an HTML page: ASCII, without scripts or external resources.

    Args:
        verified: The result of `Verified.to_dict`.
    """
    return render(
        "evidence.html",
        title=f"{_TITLES[verified['kind']]} {verified['pipeline']}".strip(),
        verdict="verified",
        it=verified,
        said={name.replace("_", " "): value for name, value in said_of(verified).items()},
        document=json.dumps(verified["document"], indent=2),
    )
