"""The pages that the plugin adds to Airflow, for both of its majors."""
