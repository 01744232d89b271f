"""Provide the Dockerfile's base image: pulled, or a stand-in built from Debian packages."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from scripts.compose_test.commands import answers, output_of
from scripts.compose_test.engine import Engine
from scripts.compose_test.errors import BaseImageError, CommandError
from scripts.compose_test.steps import say

__all__ = ["base_image", "provide_base_image"]

_MIRROR = "http://deb.debian.org/debian"
_SECURITY = "http://deb.debian.org/debian-security"


def base_image(dockerfile: str) -> str:
    """Return the one image on which all stages of a Dockerfile are based.

    Raises:
        BaseImageError: If there are several, or it isn't a Debian image.
    """
    found = sorted(set(re.findall(r"(?m)^FROM (\S+)", dockerfile)))
    if len(found) != 1 or not found[0].startswith("debian:"):
        raise BaseImageError(
            f"The Dockerfile is based on {', '.join(found) or 'nothing'}; expected one Debian "
            "image for all stages. Change it, or this check."
        )
    return str(found[0])


def provide_base_image(engine: Engine, image: str) -> str:
    """Make the image available in the engine, and return how.

    Raises:
        BaseImageError: If it can neither be pulled nor built.
    """
    if answers(["docker", "image", "inspect", image], engine.environment):
        return "already present"
    try:
        output_of(["docker", "pull", image], environment=engine.environment, seconds=300)
    except CommandError as error:
        # In a shared engine, users would mistake the stand-in for the real image.
        if not engine.is_own:
            raise BaseImageError(
                f"{image} can't be pulled, and a stand-in is built only in an engine that this "
                f"command has started: {error}"
            ) from error
        say(f"  {image} can't be pulled: building a stand-in with debootstrap")
    else:
        return "pulled"
    try:
        _make_stand_in(engine, image)
    except CommandError as error:
        raise BaseImageError(f"A stand-in for {image} can't be built: {error}") from error
    return "a stand-in"


def _make_stand_in(engine: Engine, image: str) -> None:
    release = image.partition(":")[2].removesuffix("-slim")
    if shutil.which("debootstrap") is None:
        install = ["apt-get", "install", "--yes", "--no-install-recommends", "debootstrap"]
        output_of(["apt-get", "update"], seconds=300)
        output_of(install, environment={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    with tempfile.TemporaryDirectory(prefix="kafka-drain-base-") as folder:
        root = Path(folder) / "root"
        output_of(
            ["debootstrap", "--variant=minbase", release, str(root), _MIRROR],
            seconds=600,
        )
        (root / "etc/apt/sources.list").write_text(
            f"deb {_MIRROR} {release} main\n"
            f"deb {_MIRROR} {release}-updates main\n"
            f"deb {_SECURITY} {release}-security main\n"
        )
        # As in the real image, no packages stay in the cache.
        (root / "etc/apt/apt.conf.d/docker-clean").write_text(
            'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };\n'
        )
        for package in (root / "var/cache/apt/archives").glob("*.deb"):
            package.unlink()
        tar = Path(folder) / "root.tar"
        output_of(["tar", "--directory", str(root), "--create", "--file", str(tar), "."])
        output_of(
            ["docker", "import", "--change", 'CMD ["bash"]', str(tar), image],
            environment=engine.environment,
            seconds=300,
        )
