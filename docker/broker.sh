#!/bin/sh
# Runs Kafka in the foreground from the broker jars in kafka-drain's cache. The first run formats
# the data folder.
#
#     broker.sh [PROPERTIES]
set -eu

properties=${1:-$(dirname "$0")/broker.properties}
data=$(sed -n 's/^log\.dirs=//p' "$properties")
jars=$(python -c 'from kafka_drain.spark.jars import fetch; print(fetch.verified(fetch.BROKER)[0].parent)')

kafka() {
    heap=$1
    shift
    exec "$JAVA_HOME/bin/java" "-Xmx$heap" -Djava.awt.headless=true \
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=${KAFKA_LOG_LEVEL:-info}" \
        -Dorg.slf4j.simpleLogger.showDateTime=true \
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ" \
        -cp "$jars/*" "$@"
}

# The storage tool writes meta.properties last; without that file, formatting never finished.
if [ ! -f "$data/meta.properties" ]; then
    cluster_id=$(KAFKA_LOG_LEVEL=warn && kafka 128m kafka.tools.StorageTool random-uuid)
    (KAFKA_LOG_LEVEL=warn && kafka 256m kafka.tools.StorageTool \
        format --cluster-id "$cluster_id" --config "$properties")
fi

kafka "${KAFKA_HEAP:-512m}" kafka.Kafka "$properties"
