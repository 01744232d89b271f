"""The pages that the plugin adds to Airflow 2 and 3."""
