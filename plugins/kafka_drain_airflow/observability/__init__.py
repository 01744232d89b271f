"""What Airflow shows of a task and tells others: progress, links, metrics, lineage, events."""
