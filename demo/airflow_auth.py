"""An auth manager for Airflow 3 with users who have some rights: Airflow's simple one has none."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

__all__ = ["RIGHTS", "GuestAuthManager"]

#: By user: the DAGs that may be read (empty for all), and what of them may not be.
RIGHTS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "guest": (frozenset({"drain_a"}), frozenset()),
    "without_group": (frozenset({"drain_a", "drain_b"}), frozenset()),
    "without_xcoms": (frozenset(), frozenset({"XCOM"})),
    "without_runs": (frozenset(), frozenset({"RUN"})),
}


class GuestAuthManager(SimpleAuthManager):
    """Airflow's simple auth manager, with users who may read some DAGs, or some of a DAG."""

    def is_authorized_dag(
        self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None
    ) -> bool:
        """Return whether a user may do something with a DAG."""
        allowed = super().is_authorized_dag(
            method=method, user=user, access_entity=access_entity, details=details
        )
        dag_ids, refused = RIGHTS.get(user.get_name(), (frozenset(), frozenset()))
        is_of = not dag_ids or (details is not None and details.id in dag_ids)
        return allowed and is_of and (access_entity is None or access_entity.name not in refused)
