#!/bin/sh
# Sets up an environment from scratch: .venv, the locked packages, kafka-drain itself and the jars.
# Can be run again at any time: it then only updates what has changed.
#
# setup.sh [environment folder] [lock file] [without-jars]
set -eu

venv=${1:-.venv}
lock=${2:-requirements.lock}

uv_version=0.13.9
cd "$(dirname "$0")/.."

fail() {
    printf 'setup: %s\n' "$1" >&2
    exit 1
}

now() { date +%s; }

began=$(now)
step_began=$began
step() {
    printf '%-58s %4d s\n' "$1" "$(($(now) - step_began))"
    step_began=$(now)
}

hash_inputs() {
    if command -v sha256sum >/dev/null 2>&1; then
        cat "$@" | sha256sum | cut -d ' ' -f 1
    else
        cat "$@" | shasum -a 256 | cut -d ' ' -f 1
    fi
}

python_fits() {
    # Run it, because version managers leave commands behind that only print an error.
    "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        python_fits "$PYTHON" || fail "PYTHON is $PYTHON, which isn't a working Python 3.10, 3.11, \
3.12 or 3.13. Set it to the path of one, or unset it."
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python3.10; do
        if python_fits "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "No Python 3.10 to 3.13 found on this machine. Install one, or set PYTHON to its path."
}

check_java() {
    todo="Install a JDK or JRE of version 17 or 21 (Debian: openjdk-17-jre-headless), or set \
JAVA_HOME to its folder (the one that contains bin/java)."
    if [ -n "${JAVA_HOME:-}" ]; then
        java=$JAVA_HOME/bin/java
        [ -f "$java" ] || fail "JAVA_HOME is $JAVA_HOME, which contains no bin/java. $todo"
    else
        java=$(command -v java) || fail "No Java found: JAVA_HOME isn't set and no java is on the \
PATH. Spark and Kafka need it. $todo"
    fi
    output=$("$java" -version 2>&1) || fail "$java doesn't run. $todo"
    java_major=$(printf '%s\n' "$output" |
        sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1)
    case $java_major in
    17 | 21) ;;
    *) fail "$java is Java ${java_major:-of an unknown version}, expected Java 17 or 21. $todo" ;;
    esac
}

check_disk() {
    # Packages and jars take 1 GB, and what tests write meanwhile about as much.
    for folder in . "${TMPDIR:-/tmp}"; do
        free=$(df -Pk "$folder" 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }')
        [ "${free:-2048}" -ge 2048 ] || fail "$(cd "$folder" && pwd) has $free MB left on its disk, \
expected at least 2,048 MB. Free some; TMPDIR may name a folder on another disk for temporary files."
    done
}

check_java
step "Java $java_major"
check_disk

stamp=$venv/kafka-drain-setup
inputs=$(hash_inputs "$lock" pyproject.toml)
# Where the system's Python is another one by now, an environment finds none of its packages.
wanted() {
    echo "$inputs $("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
}

if python_fits "$venv/bin/python" && [ "$(cat "$stamp" 2>/dev/null)" = "$(wanted)" ]; then
    step "Python packages: unchanged"
else
    # Only a complete run writes the stamp again.
    rm -f "$stamp"
    if python_fits "$venv/bin/python"; then
        step "$venv: kept"
    else
        python=$(find_python)
        "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
            fail "$python has no complete venv module: install python3-venv."
        "$python" -m venv --clear "$venv"
        step "$venv: created with $("$python" --version 2>&1)"
    fi
    if [ "$("$venv/bin/uv" --version 2>/dev/null | cut -d ' ' -f 2)" != "$uv_version" ]; then
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
    fi
    step "uv $uv_version"
    # Don't use the environment that may be active in this shell.
    VIRTUAL_ENV=$PWD/$venv
    export VIRTUAL_ENV
    # Unlike pip, uv compiles nothing by itself. Where Python may not write bytecode, each process
    # would spend a second on parsing pandas.
    "$venv/bin/uv" pip install --quiet --compile-bytecode --require-hashes -r "$lock"
    step "packages of $lock"
    "$venv/bin/uv" pip install --quiet --no-deps -e .
    step "kafka-drain itself, editable"
    wanted >"$stamp"
fi

# Where Python may not write bytecode, each process would spend half a second on our own code.
# A folder of another user's is no reason to stop: it is only for speed.
"$venv/bin/python" -m compileall -qq dags plugins spark_jobs || true
step "bytecode"

# `make lock-jars` runs when the jars don't match jars.lock, so it must skip this step.
if [ "${3:-}" != without-jars ]; then
    "$venv/bin/python" -m kafka_drain.spark.jars.fetch
    step "jars"
fi
step_began=$began
step "ready, total time"
