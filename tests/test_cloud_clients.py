"""A build of local files loads Beam without cloud clients; other imports of them still work."""

import sys

import pytest

from recordmill.pipeline.build.runners.worker_environment import CLIENTS, without_cloud_clients
from tests.messages import raises
from tests.test_import_tiers import python

DRIVER = """
import sys
from recordmill.pipeline.build.runners.worker_environment import CLIENTS, without_cloud_clients

with without_cloud_clients():
    import recordmill.pipeline.build.make_version
print(sorted(set(CLIENTS) & set(sys.modules)))
import apache_beam.io.gcp.gcsio, boto3, google.cloud.dataflow
"""


def test_clients_are_hidden_inside_the_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CLIENTS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "boto3", sys)  # loaded before: it stays
    with without_cloud_clients():
        with raises(ModuleNotFoundError, "pymongo"):
            import pymongo  # noqa: F401
        assert sys.modules["boto3"] is sys
    assert set(CLIENTS) & set(sys.modules) == {"boto3"}


@pytest.mark.nightly
@pytest.mark.slow
def test_the_driver_loads_without_them_and_they_load_later() -> None:
    done = python(DRIVER)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
