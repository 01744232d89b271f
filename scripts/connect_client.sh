#!/bin/sh
# Sets up the environment of a worker that has pyspark-client alone, neither pyspark nor Airflow, for
# the tests of Spark Connect.
#
# connect_client.sh [environment folder]
set -eu

venv=${1:-.venv-connect}
cd "$(dirname "$0")/.."

if [ ! -x "$venv/bin/python" ]; then
    .venv/bin/python -m venv "$venv"
fi
# pyspark's version, and the locked versions of what the commands need; the tests import our
# packages from here.
needed='confluent-kafka|cramjam|croniter|fastavro|jinja2|lz4|pyarrow|pydantic|requests|rich|s3fs|shtab|universal-pathlib|xxhash'
grep -iE "^($needed)==" requirements.lock | sed 's/ *\\$//' >"$venv/requirements.txt"
sed -n 's/^pyspark==\([0-9.]*\).*/pyspark-client==\1/p' requirements.lock >>"$venv/requirements.txt"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$venv/requirements.txt"
