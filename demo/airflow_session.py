"""Run Airflow commands one after another in one process, to import Airflow only once.

Reads one JSON list of arguments per line; prints DONE and the exit code after each command.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

__all__ = ["DONE"]

DONE = "airflow-session-done"


def main() -> None:
    """Run commands until standard input ends."""
    # Child processes of a command must not read our standard input.
    commands = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    from airflow.cli.cli_parser import get_parser
    from airflow.configuration import write_default_airflow_configuration_if_needed

    write_default_airflow_configuration_if_needed()
    for line in commands:
        code: object = 0
        try:
            command = get_parser().parse_args(json.loads(line))
            command.func(command)
        except SystemExit as ended:
            code = ended.code or 0
        except Exception:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        # In a single write, because Airflow's threads write to the same pipe.
        os.write(1, f"\n{DONE} {code if isinstance(code, int) else 1}\n".encode())


if __name__ == "__main__":
    main()
