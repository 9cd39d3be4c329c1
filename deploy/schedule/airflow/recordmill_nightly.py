"""Builds the span of the day before each run: at 03:00 of the 21st, `recordmill build … --span 2026-11-20`.

Each run gets its day from Airflow, so a run that is late or repeated builds its own day. Copy this file to
the DAGs' folder and edit the capitals.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import DAG, Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

RECORDMILL = "/opt/recordmill/bin/recordmill"  # an environment of its own: Airflow pins other packages
SPEC = "/etc/recordmill/example.yaml"
OUTPUT = "s3://example-bucket/datasets/example"
METRICS = "/var/lib/recordmill/example.prom"  # in the folder of node_exporter's textfile collector
LIVE = Asset(name="example-live", uri=f"{OUTPUT}/LATEST")

UP_TO_DATE = 3
FINAL = {
    1: "an error that a person has to mend",
    2: "a wrong option",
    4: "the gate: `recordmill diff`, then `recordmill versions approve` or `reject`",
    5: "too many rejects",
}
"""Exit codes that a repetition would end with, too: docs/rebuilds.md."""


class RecordmillOperator(BaseOperator):
    """Runs `recordmill`; skips, fails or is retried by its exit code."""

    template_fields: Sequence[str] = ("arguments",)

    def __init__(self, *, arguments: Sequence[str], **options: object) -> None:
        super().__init__(**options)
        self.arguments = arguments

    @cached_property
    def _hook(self) -> SubprocessHook:
        return SubprocessHook()

    def execute(self, context: Context) -> None:
        """Waits for the command, whose lines go to the task's log."""
        status = self._hook.run_command([RECORDMILL, *self.arguments]).exit_code
        if status == UP_TO_DATE:
            raise AirflowSkipException("up to date")
        if status in FINAL:
            raise AirflowFailException(FINAL[status])
        if status:  # 75, or a signal: the next try goes on with the finished work
            raise AirflowException(f"ended with {status}")

    def on_kill(self) -> None:
        """Stops the build, which keeps its finished work."""
        self._hook.send_sigterm()


with DAG(
    "recordmill_nightly",
    schedule="0 3 * * *",
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=True,  # builds missed days, in their order
    max_active_runs=1,
    default_args={
        "retries": 4,
        "retry_delay": timedelta(minutes=5),
        "retry_exponential_backoff": 2.0,
        "execution_timeout": timedelta(hours=6),
    },
) as dag:
    # Airflow 3 dates a run of a cron string by its start, so `ds` is the day that has just begun; with the option
    # `create_cron_data_intervals` it is the day before: use `{{ ds }}` then.
    # A DAG with `schedule=[LIVE]` trains when a new version is live, and not on days when nothing has changed.
    RecordmillOperator(
        task_id="build",
        arguments=["build", SPEC, "--output", OUTPUT, "--span", "{{ macros.ds_add(ds, -1) }}", "--metrics", METRICS],
        outlets=[LIVE],
    )
