# Two images: PostgreSQL for Airflow's database, and one for the broker, Airflow, and Spark's master
# and worker. Everything is downloaded at build time; running containers download nothing.
FROM debian:bookworm-slim AS postgres

RUN useradd --uid 50001 --user-group --home-dir /var/lib/postgresql postgres \
    && apt-get update \
    && apt-get install --yes --no-install-recommends postgresql-15 \
    # Remove the database that Debian's package creates; docker/postgres.sh creates the stack's own.
    && rm -rf /etc/postgresql /var/lib/apt/lists/* /var/lib/postgresql \
    && install -d -o postgres -g postgres /var/lib/postgresql

ENV LANG=C.UTF-8 \
    PATH=/usr/lib/postgresql/15/bin:$PATH

COPY docker/postgres.sh /usr/local/bin/
# Whatever the umask of the checkout.
RUN chmod -R u=rwX,go=rX /usr/local/bin/postgres.sh

USER postgres
CMD ["postgres.sh"]

FROM debian:bookworm-slim AS kafka-drain

RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        ca-certificates openjdk-17-jre-headless procps python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    # Debian's folder name contains the architecture; JAVA_HOME must not depend on it.
    && ln -s "java-17-openjdk-$(dpkg --print-architecture)" /usr/lib/jvm/java-17 \
    && useradd --uid 50000 --user-group --create-home kafka-drain \
    # A new named volume inherits owner and permissions from the folder it is mounted on.
    && install -d -o kafka-drain -g kafka-drain \
        /var/lib/airflow /var/lib/kafka /var/lib/kafka-drain

# For builds behind a proxy that re-signs TLS: `docker build --secret id=ca,src=FILE`. pip, uv and
# Java in the image keep trusting the (public) certificates in that PEM file.
RUN --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then \
        csplit --silent --elide-empty-files --suffix-format=%03d.crt \
            --prefix=/usr/local/share/ca-certificates/build- \
            /run/secrets/ca '/-BEGIN CERTIFICATE-/' '{*}' \
        && update-ca-certificates; \
    fi

ENV JAVA_HOME=/usr/lib/jvm/java-17 \
    KAFKA_DRAIN_CACHE=/opt/kafka-drain/cache \
    LANG=C.UTF-8 \
    PATH=/opt/kafka-drain/venv/bin:$PATH \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    PYSPARK_PYTHON=/opt/kafka-drain/venv/bin/python \
    PYTHONUNBUFFERED=1 \
    SPARK_HOME=/opt/kafka-drain/venv/lib/python3.11/site-packages/pyspark \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    UV_PYTHON_DOWNLOADS=never \
    VIRTUAL_ENV=/opt/kafka-drain/venv

WORKDIR /opt/kafka-drain

# hatchling builds the package below; installed here so that code changes need no download.
RUN python3 -m venv venv \
    && pip install --no-cache-dir --disable-pip-version-check uv==0.13.9 hatchling==1.27.0

COPY requirements-docker.lock ./
RUN uv pip install --no-cache --compile-bytecode --require-hashes -r requirements-docker.lock \
    # Java's CDS archive checks each jar's timestamp, and pulled images keep only whole seconds.
    && find venv -name '*.jar' -exec touch --date="$(date --rfc-3339=seconds)" {} +

# Only the files that the download needs, so that changes to other code don't repeat it.
COPY plugins/kafka_drain/__init__.py plugins/kafka_drain/errors.py plugins/kafka_drain/http_retries.py plugins/kafka_drain/output.py plugins/kafka_drain/progress.py fetch/kafka_drain/
COPY plugins/kafka_drain/spark/__init__.py fetch/kafka_drain/spark/
COPY plugins/kafka_drain/spark/jars/ fetch/kafka_drain/spark/jars/
RUN PYTHONPATH=fetch python -m kafka_drain.spark.jars.fetch \
    && rm -rf fetch \
    && find cache -name '*.jar' -exec touch --date="$(date --rfc-3339=seconds)" {} +

COPY pyproject.toml requirements.txt README.md LICENSE ./
COPY plugins/ plugins/
COPY spark_jobs/ spark_jobs/
RUN uv pip install --no-cache --compile-bytecode --no-deps --no-build-isolation .

# A CDS archive of the Spark driver's classes, so that drains start faster. It is optional.
RUN kafka-drain class-archive

COPY dags/ dags/
COPY docker/ docker/
# Whatever the umask of the checkout.
RUN chmod -R u=rwX,go=rX dags docker plugins spark_jobs

USER kafka-drain
