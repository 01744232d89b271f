"""What Airflow shows and publishes about a task: progress, links, metrics, lineage, events."""
