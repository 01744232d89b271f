"""The name of the user that runs this process, also where it has none."""

from __future__ import annotations

import getpass
import os


def login_name() -> str:
    """Return the user's name; for one without a name, as in many containers, one with its number.

    HDFS and YARN take only letters, digits and a few signs.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user-{os.getuid()}"


def hadoop_user() -> str:
    """Return the user for whom Hadoop takes this process, where it doesn't ask for Kerberos."""
    return os.environ.get("HADOOP_USER_NAME") or login_name()
