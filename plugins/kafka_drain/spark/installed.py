"""Refuse a pyspark of which another version of pyspark-client has overwritten a part.

Both packages install the folder `pyspark`. At the same version, each file that both have is the
same. At different versions, the one that was installed last has replaced files of the other, and
neither pip nor pyspark says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from kafka_drain.errors import MachineError

_SPARK, _CLIENT = "pyspark", "pyspark-client"


def require_unmixed_pyspark() -> None:
    """Check the pyspark that this Python imports, without importing it.

    Raises:
        MachineError: When parts of it are from another version.
    """
    spec = find_spec(_SPARK)
    for place in (spec and spec.submodule_search_locations) or ():
        check_versions(installed_versions(Path(place)), Path(place).parent)


def installed_versions(pyspark: Path) -> dict[str, str]:
    """Return the versions of the packages that have files in the folder `pyspark`, by name."""
    # importlib.metadata would take longer to import than all else that this package needs.
    found = {}
    for name in (_SPARK, _CLIENT):
        prefix = f"{name.replace('-', '_')}-"
        for path in pyspark.parent.glob(f"{prefix}[0-9]*.dist-info"):
            found[name] = path.name.removesuffix(".dist-info").removeprefix(prefix)
    return found


def check_versions(found: Mapping[str, str], folder: Path) -> None:
    """Refuse different versions.

    Args:
        found: The versions of pyspark and pyspark-client, as far as they are installed.
        folder: Folder of the installation.

    Raises:
        MachineError: When both are installed and the versions differ; says what to do.
    """
    spark, client = found.get(_SPARK), found.get(_CLIENT)
    if spark is None or client is None or spark == client:
        return
    raise MachineError(
        f"pyspark {spark} and pyspark-client {client} are both installed in {folder}, where each "
        "has overwritten files of the other. Run `pip uninstall pyspark pyspark-client`, then "
        f"install one of them: `pip install pyspark=={spark}` to start Spark on this machine, or "
        f"`pip install pyspark-client=={client}` for Spark Connect alone. If you need both, as "
        "Airflow's Spark provider 6 with a local Spark does, install the same version of both"
    )
