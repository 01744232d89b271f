"""The forms of Airflow's Trigger dialogue."""
