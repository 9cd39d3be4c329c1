"""Merges jars into one that holds all of them: the same bytes from the same jars, in whatever order.

    python merge_jars.py JARS_FOLDER MERGED.jar MAIN.CLASS

Service files are joined, since each jar lists its own implementations; licenses are kept apart by jar; signatures,
which hold for one jar alone, and metadata that no program reads are dropped. Any other two files of one name must be
equal.
"""

import argparse
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

MADE_ANEW = "META-INF/MANIFEST.MF"
SERVICES = "META-INF/services/"
LICENSES = re.compile(r"META-INF/((?:LICENSE|NOTICE|DEPENDENCIES)(?:\.\w+)?)")
# module-info.class names one module; INDEX.LIST the files of one jar; the rest serves build tools.
DROPPED = re.compile(
    r"META-INF/([^/]+\.(SF|RSA|DSA|EC)|INDEX\.LIST|maven/.*|native-image/.*|io\.netty\.versions\.properties)|"
    r"(META-INF/versions/\d+/)?module-info\.class",
)


class ConflictError(Exception):
    """Two jars hold different files of one name, and nothing says which is right."""


def merge(jars: Iterable[Path], target: Path, main_class: str) -> None:
    """Writes the merged jar, whose manifest names the class that `java -jar` runs.

    Raises:
        ConflictError: two jars hold different files of one name.
    """
    manifest = f"Manifest-Version: 1.0\r\nMain-Class: {main_class}\r\nMulti-Release: true\r\n\r\n"
    origins: dict[str, tuple[str, int]] = {}
    services: dict[str, list[str]] = defaultdict(list)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as merged:
        _write(merged, MADE_ANEW, manifest.encode())
        for jar in sorted(jars, key=lambda jar: jar.name):
            with zipfile.ZipFile(jar) as source:
                for entry in source.infolist():
                    name = LICENSES.sub(rf"META-INF/licenses/{jar.stem}/\1", entry.filename)
                    if entry.is_dir() or name == MADE_ANEW or DROPPED.fullmatch(name):
                        continue
                    if name.startswith(SERVICES):
                        services[name] += source.read(entry).decode().splitlines()
                    elif _is_new(origins, name, jar.name, entry.CRC):
                        _write(merged, name, source.read(entry))
        for name in sorted(services):
            _write(merged, name, "".join(f"{line}\n" for line in dict.fromkeys(services[name])).encode())


def _is_new(origins: dict[str, tuple[str, int]], name: str, jar: str, crc: int) -> bool:
    if name not in origins:
        origins[name] = (jar, crc)
        return True
    first, first_crc = origins[name]
    if crc != first_crc:
        raise ConflictError(f"{first} and {jar} hold different files {name}: exclude one of the jars, or drop the file")
    return False


def _write(merged: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name)  # of 1980, the format's oldest date, whatever the clock says
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    merged.writestr(entry, data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("main_class")
    given = parser.parse_args()
    merge(given.folder.glob("*.jar"), given.target, given.main_class)
