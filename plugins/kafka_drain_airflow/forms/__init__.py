"""The forms in Airflow's Trigger dialog."""
