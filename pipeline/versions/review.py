"""Approves or rejects the candidate that waits (`pipeline.versions.candidates`).

>>> approve("out").version  # doctest: +SKIP
'20261121T090000Z-77d0a4b1'
"""

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, Candidate, Latest
from recordmill.pipeline.versions import forgotten, latest_file
from recordmill.pipeline.versions.candidates import replaced
from recordmill.pipeline.versions.listing import find, open_existing
from recordmill.pipeline.versions.prune import remove_marked
from recordmill.pipeline.versions.publishing import next_sequence
from recordmill.pipeline.versions.stores.base import OutputError, Store, UnsettledOutputError


def approve(output: str, wanted: str | None = None) -> tuple[Candidate, str]:
    """Makes the waiting candidate live.

    Args:
        output: the dataset's output.
        wanted: the candidate, as `find` takes it: makes it live even if another version became live since the gate
            compared them.

    Returns:
        The candidate, and the version that was live.

    Raises:
        OutputError: no candidate waits, another one does, it was removed, or another version became live meanwhile.
        DatasetError: there is no such version.
    """
    store, version = open_existing(output), wanted and find(output, wanted).version
    approved: list[tuple[Candidate, str]] = []

    def edit(latest: Latest | None) -> Latest:
        latest, candidate = _waiting(store, latest, version)
        if candidate.live != latest.version and version is None:
            raise OutputError(
                f"{candidate.version} was compared with {candidate.live}, and {latest.version} is live now: the same "
                f"build again compares them; `recordmill versions approve {store.url} {candidate.version}` publishes "
                "it anyway"
            )
        if not store.exists(f"{VERSIONS_FOLDER}/{candidate.version}/{MANIFEST_FILE}"):
            raise UnsettledOutputError(f"the candidate {candidate.version} was removed: build again")
        forgotten.check(store, candidate.version)
        approved.append((candidate, latest.version))
        return latest_file.moved(latest, candidate.version, next_sequence(store, latest))

    latest_file.compare_and_swap(store, edit)
    return approved[-1]


def reject(output: str, wanted: str | None = None) -> tuple[Candidate, bool]:
    """Takes the waiting candidate back and removes it, unless it was live once, is pinned or is held.

    Returns:
        The candidate, and whether it was removed.

    Raises:
        OutputError: no candidate waits, or another one does. DatasetError: there is no such version.
    """
    store, version = open_existing(output), wanted and find(output, wanted).version
    rejected: list[Candidate] = []

    def edit(latest: Latest | None) -> Latest:
        latest, candidate = _waiting(store, latest, version)
        rejected.append(candidate)
        return replaced(latest, "")

    latest_file.compare_and_swap(store, edit)
    remove_marked(output)
    return rejected[-1], not store.exists(f"{VERSIONS_FOLDER}/{rejected[-1].version}/{MANIFEST_FILE}")


def _waiting(store: Store, latest: Latest | None, version: str | None) -> tuple[Latest, Candidate]:
    if latest is None or latest.candidate is None:
        live = f"; {latest.version} is live" if latest else ""
        raise OutputError(f"no candidate waits in {store.url}{live}")
    if version is not None and version != latest.candidate.version:
        raise OutputError(f"{version} does not wait in {store.url}: the candidate is {latest.candidate.version}")
    return latest, latest.candidate
