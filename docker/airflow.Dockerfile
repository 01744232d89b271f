# kafka-drain in Airflow's own image. Build the wheel first (`uv build --wheel`), then, in its folder:
# docker build --file docker/airflow.Dockerfile --tag airflow-kafka-drain:3.3.2 dist
FROM apache/airflow:3.3.2-python3.12
USER root
RUN apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jre-headless && rm -rf /var/lib/apt/lists/*
USER airflow
COPY kafka_drain-*.whl /tmp/
RUN pip install --no-cache-dir --constraint "${HOME}/constraints.txt" "$(echo /tmp/kafka_drain-*.whl)[pyspark,s3]" pyspark==4.1.1 && kafka-drain jars
