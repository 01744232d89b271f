"""What a user may see on the pages, DAG by DAG. Opens nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

#: What a page shows of a DAG besides its name, as Airflow names it: who may see an archive may see
#: all of these. Airflow's auth manager decides.
ENTITIES = ("RUN", "TASK_INSTANCE", "XCOM")


class Rights:
    """The DAGs of which a user may see runs, tasks and XComs.

    Args:
        dag_ids: Ids of the DAGs that the user may read.
        may_see: Says whether the user may also see what the pages show of one of them. It is asked
            only for DAGs that a page is about, and once for each.
    """

    def __init__(self, dag_ids: Collection[str], may_see: Callable[[str], bool]) -> None:
        self.dag_ids = frozenset(dag_ids)
        self._may_see = may_see
        self._known: dict[str, bool] = {}

    def of(self, dag_ids: Iterable[str]) -> set[str]:
        """Return those of the given DAGs that the user may see."""
        return {dag_id for dag_id in dag_ids if self._has(dag_id)}

    def _has(self, dag_id: str) -> bool:
        if dag_id not in self.dag_ids:
            return False
        if dag_id not in self._known:
            self._known[dag_id] = self._may_see(dag_id)
        return self._known[dag_id]
