"""The machines of a Dataflow job, in one process: runs the graph that a driver staged, with the job's options.

python -m tests.dataflow_worker OPTIONS_JSON FOLDER
"""

import json
import os
import sys

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner


def _number(value: object) -> object:
    """Gives a whole number back that a job's description holds as a fraction."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def main() -> None:
    given = {key: _number(value) for key, value in json.loads(sys.argv[1]).items()}
    url = given.pop("pipelineUrl")
    given.pop("pipelineProtoHash", None)
    options = PipelineOptions.from_dictionary(given)
    FileSystems.set_options(options)
    with FileSystems.open(url) as file:
        pipeline = beam_runner_api_pb2.Pipeline.FromString(file.read())
    for environment in pipeline.components.environments.values():
        environment.urn, environment.payload = python_urns.EMBEDDED_PYTHON, b""
    os.chdir(sys.argv[2])
    FnApiRunner().run_via_runner_api(pipeline, options).wait_until_finish()


if __name__ == "__main__":
    main()
