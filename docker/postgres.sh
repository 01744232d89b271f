#!/bin/sh
# Runs PostgreSQL in the foreground; the first time it makes the database `airflow` and its user.
set -eu

data=/var/lib/postgresql/data
unfinished=$data.unfinished

sql() {
    # Starts, answers and ends without ever listening.
    echo "$1" | postgres --single -D "$unfinished" postgres >/dev/null
}

if [ ! -d "$data" ]; then
    rm -rf "$unfinished"
    initdb --pgdata "$unfinished" --username postgres --auth-local peer --auth-host reject \
        --encoding UTF8 --locale C.UTF-8
    # Without a password, and to one database only: the stack's network `database` joins PostgreSQL
    # to Airflow and nothing else. `postgres` itself is reached from inside the container alone.
    cat >"$unfinished/pg_hba.conf" <<EOF
local all postgres peer
host airflow airflow samenet trust
EOF
    sql 'CREATE ROLE airflow LOGIN'
    sql 'CREATE DATABASE airflow OWNER airflow'
    # Only a whole database gets its name.
    mv "$unfinished" "$data"
fi

exec postgres -D "$data" -c listen_addresses='*'
