"""The rights of a user on the pages, DAG by DAG. Opens nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

#: The parts of a DAG that a page shows besides its name, as Airflow names them: who may see an
#: archive may see all of these. Airflow's auth manager decides.
ENTITIES = ("RUN", "TASK_INSTANCE", "XCOM")


class Rights:
    """The DAGs of which a user may see runs, tasks and XComs.

    Args:
        dag_ids: Ids of the DAGs that the user may read.
        visible: Returns those of some of them of which the user may also see what the pages show.
            It is asked only for DAGs that a page is about, and once for each.
    """

    def __init__(
        self, dag_ids: Collection[str], visible: Callable[[Collection[str]], Collection[str]]
    ) -> None:
        self.dag_ids = frozenset(dag_ids)
        self._visible = visible
        self._asked: set[str] = set()
        self._seen: set[str] = set()

    def of(self, dag_ids: Iterable[str]) -> set[str]:
        """Return those of the given DAGs that the user may see."""
        wanted = self.dag_ids & {*dag_ids}
        if new := wanted - self._asked:
            self._seen.update(self._visible(sorted(new)))
            self._asked |= new
        return self._seen & wanted
