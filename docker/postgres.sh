#!/bin/sh
# Runs PostgreSQL in the foreground. The first run creates the database `airflow` and its user.
set -eu

data=/var/lib/postgresql/data
unfinished=$data.unfinished

sql() {
    # Runs in single-user mode, without listening for connections.
    echo "$1" | postgres --single -D "$unfinished" postgres >/dev/null
}

if [ ! -d "$data" ]; then
    rm -rf "$unfinished"
    initdb --pgdata "$unfinished" --username postgres --auth-local peer --auth-host reject \
        --encoding UTF8 --locale C.UTF-8
    # Without a password, and for one database only: the stack's network `database` connects
    # PostgreSQL to Airflow only. The user `postgres` can log in only from inside the container.
    cat >"$unfinished/pg_hba.conf" <<EOF
local all postgres peer
host airflow airflow samenet trust
EOF
    sql 'CREATE ROLE airflow LOGIN'
    sql 'CREATE DATABASE airflow OWNER airflow'
    # Only a complete database gets the final name.
    mv "$unfinished" "$data"
fi

exec postgres -D "$data" -c listen_addresses='*'
