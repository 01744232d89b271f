"""The view of a task in Airflow: progress, links, metrics, lineage, events."""
