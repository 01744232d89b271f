"""kafka-drain's core: archive, manifest, proof and republish. Knows neither Airflow nor Spark."""
