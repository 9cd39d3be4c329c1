"""Runs jobs on Google Cloud Dataflow: presets and checks of its options, submission, and watching.

Options keep Beam's names. Beam's validator and these checks give a message each before anything is sent; the service
refuses other values with the job.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, TestOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner as BeamRunner
from apache_beam.runners.dataflow.internal import apiclient
from google.api_core.exceptions import GoogleAPICallError, NotFound, RetryError, ServerError, TooManyRequests
from google.api_core.retry import Retry, if_exception_type
from google.auth.exceptions import GoogleAuthError, TransportError
from google.cloud import dataflow as api
from requests import RequestException

from recordmill.pipeline.build.beam.runner import JobPipeline, Runner, parse_options
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import raising_left_error
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.build.runners import job
from recordmill.pipeline.build.runners.job import JobFailedError, JobStillRunsError, RunnerError
from recordmill.pipeline.errors import ExitCode
from recordmill.pipeline.safe_text import redacted, summary_of_text

POLL_SECONDS = 3.0
PATIENCE_SECONDS = 600.0
"""A build gives up after this time without an answer of the service, although its job may be healthy."""
REQUEST_SECONDS = 60.0
OLD_JOB_SECONDS = 600.0  # the service takes minutes to end a job's machines
UNLISTED_SECONDS = 10.0  # the service lists a job within this time if its driver stopped during the submission
REFUSED = "REFUSED"
AWAY: tuple[type[Exception], ...] = (ServerError, TooManyRequests, TransportError, RequestException)
ENDED = {"DONE", "FAILED", "CANCELLED", "UPDATED", "DRAINED", REFUSED}
Proto = Any  # `google.cloud.dataflow.Job`; Google's packages have no types for mypy here
Options = Mapping[str, Any]  # Beam's options by their names, without default values

REQUIRED = {
    "project": "the project's id, such as my-project",
    "region": "such as europe-west1",
    "temp_location": "a folder of a bucket in that region, such as gs://my-bucket/temp",
    "sdk_container_image": "the image of deploy/container in a registry, best with its digest",
}
PRESETS: dict[str, Any] = {
    "machine_type": "n2-highmem-4",  # one Python process a core, each with TensorFlow (0.8 GB) and a shard's rows
    "number_of_worker_harness_threads": 1,  # a process holds one shard's rows; its own threads overlap reading
    "max_num_workers": 20,  # the service's default is the project's quota
    "disk_size_gb": 50,  # the image has 4 GB unpacked; rows cross the service's shuffle, not the disk
    "use_public_ips": False,  # the subnetwork needs Private Google Access
    "sdk_location": "container",  # a starting worker installs nothing
    "save_main_session": False,  # the modules that a spec names travel as source
}
OPTIONAL = ("machine_type", "max_num_workers", "service_account_email", "subnetwork", "sdk_container_image")
SHOWN = ("project", "region", "temp_location", *OPTIONAL)  # by a dry run
NAME_LENGTH = 63  # characters of a job's name
PREFIX, KEY_LENGTH = "recordmill", 8
GRAPH_BYTES = 10_000_000  # the service refuses a graph of 10 MB
MESSAGE_LENGTH = 300
REPEATED = "work item was attempted"  # the service's summary of four failures; another message gives the cause
FOLDER = re.compile(r"gs://[a-z0-9][-_.a-z0-9]+[a-z0-9]/+[^/].*")  # Beam would make a bucket for another
REFUSED_OPTIONS = {
    "job_name": "a build names its jobs itself, for a later driver to find them",
    "template_location": "a classic template holds one job's graph, and a build runs several: use deploy/dataflow",
    "dataflow_job_file": "use --dry_run=True, which writes nothing",
    "streaming": "a build is a batch job",
    "update": "only a streaming job can be updated",
}


def with_presets(given: Options) -> dict[str, Any]:
    """Adds the presets to the user's options, which override them."""
    options = PRESETS | dict(given)
    if "max_num_workers" not in given:
        options["max_num_workers"] = max(PRESETS["max_num_workers"], given.get("num_workers") or 0)
    if temp := given.get("temp_location"):
        options.setdefault("staging_location", f"{temp.rstrip('/')}/staging")
    return options


def check(options: Options) -> None:
    """Checks what Beam's validator does not. Raises: RunnerError: a line for each bad option."""
    missing = {name: meaning for name, meaning in REQUIRED.items() if not options.get(name)}
    problems = [f"--runner dataflow needs --{name} after the --: {meaning}" for name, meaning in missing.items()]
    problems += [f"--{name} is refused: {reason}" for name, reason in REFUSED_OPTIONS.items() if options.get(name)]
    for name in ("temp_location", "staging_location"):
        if options.get(name) and not FOLDER.fullmatch(options[name]):
            problems.append(f"--{name} '{options[name]}' is not a folder of a bucket, such as gs://my-bucket/temp")
    if problems:
        raise RunnerError("\n".join(problems))


def job_name(spec: str, build_key: str) -> str:
    """Makes the name of all jobs of a build, by which a later driver finds a running one."""
    plain = re.sub("[^a-z0-9]+", "-", spec.lower()).strip("-")
    plain = plain[: NAME_LENGTH - len(f"{PREFIX}--") - KEY_LENGTH].strip("-")
    return "-".join(part for part in (PREFIX, plain, build_key[:KEY_LENGTH]) if part)


def is_job_of(name: str, build_key: str) -> bool:
    """Whether a job's name is the name of a build's jobs."""
    return name.startswith(f"{PREFIX}-") and name.endswith(f"-{build_key[:KEY_LENGTH]}")


def check_reachable(workspace: str, sources: Iterable[str]) -> None:
    """Checks that the service's machines reach a build's output and sources. Raises: RunnerError: one is local."""
    if not workspace.startswith("gs://"):
        raise RunnerError(f"--runner dataflow needs an --output in Cloud Storage, gs://BUCKET/FOLDER, not {workspace}")
    for path in (path for path in sources if "://" not in path):
        raise RunnerError(
            f"Dataflow's machines cannot read {path}: copy it into Cloud Storage (`gcloud storage cp -r`), and "
            "give its gs:// URL as the source's path"
        )


def cause_of(messages: Sequence[str]) -> str:
    """Finds the cause of a job's failure in the service's error messages, without values of rows.

    >>> cause_of(["The work item was attempted 4 times", "Quota 'CPUS' exceeded: 20 of 24"])
    "Quota 'CPUS' exceeded: 20 of 24"
    """
    for message in messages:
        if "Traceback" in message and (summary := summary_of_text(message)):
            return f"a worker raised {summary}"
    telling = [message for message in messages if REPEATED not in message] or list(messages)
    return redacted(telling[-1].strip())[:MESSAGE_LENGTH] if telling else "the service gives no reason"


class DataflowRunner(Runner):
    """`--runner dataflow`: all jobs of a build have one name, and the service runs one job of a name at a time."""

    probes_workers = False  # starting machines for a probe takes minutes; `check_reachable` asks for URLs

    def __init__(self, options: RunOptions) -> None:
        self._given = parse_options(options.beam_options).get_all_options(drop_default=True)
        self._complete = with_presets(self._given)
        check(self._complete)
        self._arguments = list(options.beam_options)
        super().__init__(BeamRunner(), self._options_of(""), options.attempts)
        checked = self._options_of("")
        checked.view_as(TestOptions).dry_run = True  # or the validator asks the bucket for its policies
        if problems := PipelineOptionsValidator(checked, self._runner).validate():
            raise RunnerError("\n".join(problems))
        # 2 for one core, as one reads; all cores for the only process of a machine
        is_alone = self.options.view_as(DebugOptions).lookup_experiment("no_use_multiple_sdk_containers")
        self.threads = 0 if is_alone else 2
        self._is_dry = bool(self._given.get("dry_run"))

    def begin(self, build_key: str, listener: Listener, checks: Sequence[Callable[[], None]]) -> None:
        super().begin(build_key, listener, checks)
        if self._is_dry:
            return
        jobs = _Jobs(self.options)
        for old in jobs.active(lambda name: is_job_of(name, build_key)):
            listener.on_note(f"cancelling the job that an earlier driver left: {jobs.page(old.id)}")
            RunningJob(jobs, old.name).cancel(OLD_JOB_SECONDS)

    @contextmanager
    def pipeline(self, planned: PlannedBuild) -> Iterator[Pipeline]:
        """Yields a pipeline, which runs as a job at the end of the block.

        Raises: DryRunFinished: the options ask for a dry run, and the graph is made. RunnerError: the service would
        refuse the job, or its machines could not read or write.
        """
        paths = [each.source.path for each in planned.readers if each.source.format != "python"]
        check_reachable(planned.workspace.url, paths)
        options = self._options_of(job_name(planned.name, self._build_key))
        options.view_as(TestOptions).dry_run = True  # `run` makes the graph, and sends nothing
        pipeline = JobPipeline(runner=self._runner, options=options)
        yield pipeline
        made = pipeline.run().job
        size = made.proto_pipeline.ByteSize()
        if size >= GRAPH_BYTES:
            raise RunnerError(
                f"the job's graph has {size:,} bytes, and Dataflow refuses {GRAPH_BYTES:,}: give the longest lists of "
                "the spec as files, such as `classes_file`"
            )
        if self._is_dry:
            steps = len(made.proto_pipeline.components.transforms)
            given = {name: self._complete[name] for name in SHOWN if self._complete.get(name)}
            head = f"dry run: nothing was sent. The first job is {made.proto.name}: {steps:,} steps, a graph of"
            lines = [f"  {name}: {value}" for name, value in given.items()]
            raise job.DryRunFinished("\n".join([f"{head} {size:,} bytes", *lines]))
        options.view_as(TestOptions).dry_run = False
        running = RunningJob(_Jobs(options, made.root_staging_location), made.proto.name)
        self._listener.on_job(running)
        try:
            with raising_left_error(planned.workspace), job.watched(running, self._checks):
                running.submit(made)
                running.wait()
        finally:
            self._listener.on_job(None)

    def _options_of(self, name: str) -> PipelineOptions:
        """Makes the options of a job: new ones each time, since Beam changes them as it submits."""
        presets = {key: value for key, value in self._complete.items() if key not in self._given}
        return PipelineOptions(self._arguments, pipeline_type_check=False, job_name=name, **presets)


class NoAnswerError(RunnerError):
    """The service does not answer now; it may in a moment."""

    exit_code = ExitCode.TRY_AGAIN


class RunningJob:
    """`runners.job.Job` on Dataflow, found by its name before the service has answered with an id."""

    def __init__(self, jobs: "_Jobs", name: str) -> None:
        self.state = self.url = ""
        self._jobs, self._name = jobs, name
        self._id, self._is_in_submission = "", False
        self._polled = self._answered = 0.0
        self._uncancelled: RunnerError | None = None

    def submit(self, job: Proto) -> None:
        """Stages the graph and starts the job.

        Raises: RunnerError: the service refuses it, or a job of this name runs already. JobFailedError: the service
        does not answer; it may have accepted the job.
        """
        self._is_in_submission = True  # stays True after Ctrl-C: the service may have accepted the job
        try:
            self._id = self._jobs.create(job).id
        except NoAnswerError as error:
            self._is_in_submission = False
            raise JobFailedError(str(error)) from error
        except RunnerError:
            self.state = REFUSED  # a running job of this name belongs to another driver
            raise
        self._is_in_submission = False
        self.url, self.state, self._answered = self._jobs.page(self._id), "PENDING", time.monotonic()

    def poll(self) -> None:
        """Reads the state, at most every few seconds. Raises: RunnerError: refused, or `PATIENCE_SECONDS` silent."""
        if not self._id or time.monotonic() - self._polled <= POLL_SECONDS:
            return
        self._polled = time.monotonic()
        try:
            self.state = self._jobs.state(self._id)
            self._answered = time.monotonic()
        except NoAnswerError:
            if time.monotonic() - self._answered > PATIENCE_SECONDS:
                raise

    def wait(self) -> None:
        """Waits for the job's end. Raises: JobFailedError: it is not DONE. RunnerError: not cancelled, or silent."""
        while self.state not in ENDED:
            if self._uncancelled:
                raise self._uncancelled
            time.sleep(0.2)
            self.poll()
        if self.state != "DONE":
            raise JobFailedError(self.failure())

    def cancel(self, timeout_seconds: float = job.CANCEL_SECONDS) -> None:
        """Cancels the job and waits for its end.

        Raises: JobStillRunsError: it did not end in time, its submission may yet succeed, or the service does not
        answer. RunnerError: the service refuses to cancel it.
        """
        if self.state in ENDED:
            return
        future: Future[None] = Future()

        @Retry(if_exception_type(NoAnswerError), initial=1, maximum=5, timeout=timeout_seconds)
        def cancel() -> None:
            for listed in self._listed():
                self.url = self._jobs.page(listed.id)
                self._jobs.cancel(listed.id)
                while (state := self._jobs.state(listed.id)) not in ENDED:
                    time.sleep(1)
                self.state = state

        def run() -> None:
            try:
                future.set_result(cancel())
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        try:
            future.result(timeout_seconds)  # Beam's client tries for many minutes
        except (TimeoutError, RetryError) as error:
            raise JobStillRunsError(
                f"the cancelled job {self._name} has not ended after {timeout_seconds:.0f} s: see {self.url}"
            ) from error
        except RunnerError as error:
            self._uncancelled = error
            raise

    def failure(self) -> str:
        """Describes why the job failed, in one line with its page."""
        if not self._id:
            return ""
        how = "was cancelled"
        if self.state != "CANCELLED":
            try:
                how = f"failed: {self._jobs.cause(self._id)}"
            except RunnerError as error:
                how = f"failed: {error}"
        return f"the Dataflow job {self._id} {how} ({self.url})"

    def _listed(self) -> list[Proto]:
        """Lists the job; waits some seconds for one in submission. Raises: JobStillRunsError: it may yet begin."""
        until = time.monotonic() + UNLISTED_SECONDS
        while self.state != REFUSED:
            may_come = self._is_in_submission
            if (jobs := self._jobs.active(self._name.__eq__)) or not may_come:
                return jobs
            if time.monotonic() > until:
                raise JobStillRunsError(
                    f"the job {self._name} was being submitted and is not listed yet: if it begins, cancel it in the "
                    "console of Dataflow, or run the same command again, which cancels it first"
                )
            time.sleep(1)
        return []


class _Jobs:
    """The service's jobs, by Beam's client."""

    def __init__(self, options: PipelineOptions, staging: str | None = None) -> None:
        self._options = options.get_all_options()
        with _refusals():
            self._client = apiclient.DataflowApplicationClient(options, staging)

    def create(self, job: Proto) -> Proto:
        with _refusals():
            return self._client.create_job(job)

    def active(self, is_ours: Callable[[str], bool]) -> list[Proto]:
        """Lists the unfinished jobs; Beam's own search by name leaves out jobs that wait for machines."""
        request = api.ListJobsRequest(
            project_id=self._options["project"],
            location=self._options["region"],
            filter=api.ListJobsRequest.Filter.ACTIVE,
        )
        with _refusals():
            jobs = self._client._jobs_client.list_jobs(request, timeout=REQUEST_SECONDS)
            return [each for each in jobs if is_ours(each.name)]

    def state(self, job: str) -> str:
        """Reads a state without Beam's own retries, which back off for minutes."""
        request = api.GetJobRequest(project_id=self._options["project"], location=self._options["region"], job_id=job)
        with _refusals(NotFound):  # a new job is not found for a moment
            state = self._client._jobs_client.get_job(request, timeout=REQUEST_SECONDS).current_state
        return state.name.removeprefix("JOB_STATE_") if state else "PENDING"

    def cancel(self, job: str) -> None:
        with _refusals():
            self._client.modify_job_state(job, "JOB_STATE_CANCELLED")

    def cause(self, job: str) -> str:
        """Describes a failed job by the service's messages, without values of rows."""
        with _refusals():
            messages, _ = self._client.list_messages(job, minimum_importance="JOB_MESSAGE_ERROR")
        return cause_of([message.message_text for message in messages])

    def page(self, job: str) -> str:
        """Returns the URL of a job's page in the console, which knows the project; messages hide a URL's query."""
        return f"https://console.cloud.google.com/dataflow/jobs/{self._options['region']}/{job}"


@contextmanager
def _refusals(*away: type[Exception]) -> Iterator[None]:
    """Turns an error of the service or the network into one line.

    Raises: NoAnswerError: an error of `AWAY` or `away`, or of credentials: their renewal may fail for a moment.
    RunnerError: the service refuses the request.
    """
    try:
        yield
    except AWAY + away as error:
        raise NoAnswerError(f"Dataflow does not answer: {redacted(str(error))}") from error
    except GoogleAPICallError as error:
        raise RunnerError(f"Dataflow refuses: {redacted(str(error.message))}") from error
    except GoogleAuthError as error:
        raise NoAnswerError(
            "no valid credentials for Google Cloud: run `gcloud auth application-default login`, or set "
            "GOOGLE_APPLICATION_CREDENTIALS to the file of an account's key"
        ) from error
    except apiclient.DataflowJobAlreadyExistsError as error:
        raise RunnerError("another driver has just started the same build: wait for it, or cancel its job") from error
