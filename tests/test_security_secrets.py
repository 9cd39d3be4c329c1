"""A canary in every place where a secret may stand: it is told nowhere, whether a build succeeds or fails."""

import base64
import json
import os
import re
import stat
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recordmill import open_dataset
from recordmill.pipeline.build.base.live_analysis import published_path
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.beam.runners import RunnerError, make_runner
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.json_values import read_as
from recordmill.pipeline.safe_text import frames_of, public_url, redacted, summary_of, without_values
from recordmill.pipeline.sources.user_code import UserCode, blame
from recordmill.pipeline.spec.model import parse_spec
from tests.forked import recordmill
from tests.memory_store import memory_store
from tests.messages import assert_names, raises

ROOT = Path(__file__).parents[1]
CANARY = "C4nary"
SECRET = "S3cret/Zq8+x=4"
"""What no file may hold, not even the scratch of a build: it stands in the environment, in options and in URLs."""
URLS = {
    "s3://key:C4nary@bucket/a.csv": ("s3://***@bucket/a.csv", "s3://bucket/a.csv"),
    "s3://AKIA:C4/na+ry@bucket/a@b.csv": ("s3://***@bucket/a@b.csv", "s3://bucket/a@b.csv"),
    "s3://C4n/ary:C4n/ary@bucket/a@b": ("s3://***@bucket/a@b", "s3://bucket/a@b"),
    "gs://C4n/a:r/y@C4n@bucket/a": ("gs://***@bucket/a", "gs://bucket/a"),
    "s3://C4nary@bucket/a": ("s3://***@bucket/a", "s3://bucket/a"),
    "gs://bucket/a.csv?token=C4nary&x=1": ("gs://bucket/a.csv?***", "gs://bucket/a.csv"),
    "s3://bucket/a b.csv?token=C4nary": ("s3://bucket/a b.csv?***", "s3://bucket/a b.csv"),
    "gs://bucket/a#sig=C4nary": ("gs://bucket/a?***", "gs://bucket/a"),
    "https://u:p@h:80/a?C4nary": ("https://***@h:80/a?***", "https://h:80/a"),
    "https://h/a#C4nary": ("https://h/a?***", "https://h/a"),
    "HTTP://u:C4nary@h/a": ("HTTP://***@h/a", "HTTP://h/a"),
    "https://u:p@C4nary@h/a": ("https://***@h/a", "https://h/a"),
    "hdfs://name:8020/a": ("hdfs://name:8020/a", "hdfs://name:8020/a"),
    "http://localhost:9000/a@b/c": ("http://localhost:9000/a@b/c", "http://localhost:9000/a@b/c"),
    "gs://bucket/part-?-of-*.csv": ("gs://bucket/part-?-of-*.csv", "gs://bucket/part-?-of-*.csv"),
    "s3://bucket/a=1/b&c": ("s3://bucket/a=1/b&c", "s3://bucket/a=1/b&c"),
}


@pytest.mark.parametrize("url", URLS)
def test_urls_are_told_without_secrets(url: str) -> None:
    told, public = URLS[url]
    assert redacted(f"cannot read '{url}': no") == f"cannot read '{told}': no"
    assert redacted(f"cannot read {url}: no") == f"cannot read {told}: no"
    assert str(UserError(f"{url} is gone")) == f"{told} is gone"
    assert public_url(url) == published_path(url) == public


ODD_URLS = {
    "s3://us er:C4nary word@host/x": "s3://***@host/x",
    "s3://user:C4n\nary@host/x": "s3://***@host/x",
    "s3://user:C4n'ary@host/x": "s3://***@host/x",
    "//user:C4nary@host/x": "//***@host/x",
    "https:/user:C4nary@host/x": "https:/***@host/x",
    "s3%3A%2F%2Fuser%3AC4nary%40host": "s3%3A%2F%2F***",
    "S3%253a%252f%252fuser%253AC4nary%2540host": "S3%253a%252f%252f***",
    "s3://user%3AC4nary%40host/x": "s3://***@host/x",
    "https://host/a;jsessionid=C4nary": "https://host/a?***",
    "https://host/a?mail=C4nary@x.org": "https://host/a?***",
    "https://user:C4nary@[::1]:80/a": "https://***@[::1]:80/a",
    "https://proxy/s3://user:C4nary@host/x": "https://proxy/s3://***@host/x",
    "jdbc:postgresql://user:C4nary@host/db?password=C4nary": "jdbc:postgresql://***@host/db?***",
    "redis://:C4nary@host": "redis://***@host",
}
ORDINARY = [
    "ask joe@x.org",
    "s3://bucket: ask joe@x.org",
    "s3://bucket and joe@x.org",
    "see http://localhost:9000 or joe@x.org",
    "http://[::1]:80/a@b",
    "a://b, a:/b, //c and C:/d;e=f",
    "data//x@y.csv",
    "s3://bucket/a@b.csv",
    "s3://bucket/a.csv:12: ask joe@x.org",
    "s3://bucket/a.csv: joe@x.org",
    "https://web/2020/https://host/@joe",
    "http://[::1]/a:b@c",
    "s3://bucket/part-?.csv",
    '{"url":"s3://bucket","mail":"joe@x.org"}',
    "https%3A%2F%2Fhost%2Fa",
]


@pytest.mark.parametrize("url", ODD_URLS)
def test_a_secret_in_a_url_of_an_odd_form_is_hidden(url: str) -> None:
    assert redacted(f"cannot read {url} now") == f"cannot read {ODD_URLS[url]} now"


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert redacted(text) == text


SCHEMES = st.sampled_from(
    ["s3://", "S3://", "https://", "https:/", "jdbc:mysql://", "//", "s3%3A%2F%2F", "gs%253A%252f%252F"]
)
HOSTS = st.sampled_from(["host", "host:80/a@b", "[::1]:80", "h/x?y=1", "h/p-?.csv"])


@given(
    SCHEMES,
    st.text("ab %3:/", max_size=5),
    st.text("ab01/+=:?#;'%é \n", max_size=9),
    HOSTS,
    st.sampled_from(["", " now"]),
)
def test_no_password_of_any_url_is_told(scheme: str, user: str, password: str, host: str, end: str) -> None:
    assume("/" not in user and ":" not in user and "://" not in password)
    assume(not ("%" in scheme and re.search(r"[\s']", user + password)))
    url = f"{scheme}{user}:Q{password}Z@{host}"
    told = redacted(f"cannot read {url}{end}")
    assert not {"Q", "Z"} & set(told)
    assert redacted(told) == told


@given(st.text(alphabet="s3:/@%4025fA?#=;.a \n'[]*", max_size=40))
def test_what_is_redacted_stays_as_it_is(text: str) -> None:
    assert redacted(redacted(text)) == redacted(text)


def test_no_message_cuts_a_value_before_its_secrets_are_hidden() -> None:
    with raises(DatasetError, "`records`", "'s3://***@bucket'") as raised:
        read_as(f"s3://key:{CANARY * 30}@bucket", int, "`records`")
    assert CANARY not in str(raised.value)
    files = [file for folder in ("pipeline", "transforms") for file in (ROOT / folder).rglob("*.py")]
    cutting = re.compile(r"\{[^{}]*:\.\d+\}")  # a format; `redaction.cut` hides before it cuts
    assert [line for file in files for line in cutting.findall(file.read_text())] == []


def test_what_a_library_says_of_a_url_is_redacted() -> None:
    url = "s3://key:C4n%2Fary@bucket/a?token=C4nary"
    said = 'no bucket "key:C4n%2Fary@bucket", key C4n/ary, query token=C4nary'
    assert redacted(said, url) == 'no bucket "***@bucket", key ***, query ***'
    assert redacted("of 4 rows", "s3://a:4@b/c") == "of 4 rows"  # too short to be told from other words


def test_a_source_that_cannot_be_listed_tells_no_password() -> None:
    with raises(OSError, "https://***@h/a") as raised:
        BeamFiles().match(f"https://u:{CANARY}@h/a?{CANARY}")
    assert CANARY not in str(raised.value)


def test_a_dataset_that_cannot_be_read_tells_no_password() -> None:
    url = f"memory://key:{CANARY}@bucket/out?token={CANARY}"
    with memory_store() as memory:
        memory.refusals["range"] = ValueError(f"403 for {url} and {CANARY}")
        with pytest.raises(DatasetError) as raised:
            open_dataset(url)
    assert "memory://***@bucket/out" in str(raised.value)
    assert CANARY not in str(raised.value)
    assert raised.value.__suppress_context__  # what the library raised is not printed with it


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (["--s3_secret_acces_key=C4nary"], ("--s3_secret_acces_key", "did you mean --s3_secret_access_key")),
        (["--s3_secret_acces_key", "C4nary"], ("--s3_secret_acces_key",)),
        (["--direct_num_workers=C4nary"], ("--direct_num_workers=***",)),
        (["--direct_num_workers", "C4nary", "--x"], ("--direct_num_workers *** --x",)),
        (["--runner=C4nary"], ("--runner", "--")),
        (["--save_main_session", "--s3_secret_access_key=C4nary"], ("--save_main_session",)),
    ],
)
def test_options_of_beam_are_told_by_their_names(
    options: list[str], facts: tuple[str, ...], capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with raises(RunnerError, *facts) as raised:
        make_runner(RunOptions(beam_options=tuple(options)))
    told = capfd.readouterr()
    assert CANARY not in str(raised.value) + told.out + told.err + caplog.text


def test_options_of_a_function_are_not_told() -> None:
    given = {"token": CANARY, "more": [{"url": "postgres://C4nary2"}], "sep": ","}
    error = ValueError(f"no, {CANARY} at postgres://C4nary2")
    assert_names(blame(error, "a:b", given), "`a:b`", "ValueError: no, *** at ***")
    assert str(blame(error, "a:b")).endswith(f"no, {CANARY} at postgres://C4nary2")  # its own words
    for said in ("a C4/na%20ry%2B", "a C4%2Fna+ry%2B", "a C4%2Fna%20ry%2B", "a C4/na ry+"):
        assert_names(blame(ValueError(said), "a:b", {"token": "C4/na ry+"}), "`a:b`", "ValueError: a ***")
    assert "C4" not in str(blame(KeyError("C4\\na'ry"), "a:b", {"token": "C4\\na'ry"}))
    url = OSError(2, "not found", "https://h/C4nary")
    assert "C4" not in str(blame(url, "a:b", {"token": CANARY}))


@pytest.mark.parametrize("name", ["scans", "scans/a.xml", "scans/*.xml", "gone.csv", "gone/a.csv", "/gone/a.csv"])
def test_a_file_name_in_an_option_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "scans").mkdir()
    (tmp_path / "reader.py").write_text("def rows(): ...")
    UserCode.of(["reader:rows"], str(tmp_path)).install()
    error = FileNotFoundError(2, "No such file or directory", f"{name}")
    given = {"folder": name, "token": CANARY}
    assert name in str(blame(error, "a:b", given))
    said = str(blame(ValueError(f"{name} is empty, {CANARY}"), "a:b", given))
    assert said.endswith("is empty, ***")
    assert (name in said) == ("gone" not in name)
    UserCode("", {}).install()


@pytest.mark.parametrize("options", ["[{token: C4nary}]", "C4nary", "[C4nary]"])
def test_a_wrong_form_of_options_is_told_by_its_type(options: str) -> None:
    text = f"name: a\nsource: {{format: python, rows: 'a:b', options: {options}}}\nfeatures: {{n: {{kind: number}}}}\n"
    with raises(UserError, ":2: source.options", "a mapping", "a list" if "[" in options else "text") as raised:
        parse_spec(text)
    assert CANARY not in str(raised.value)


def test_an_unforeseen_error_is_told_without_what_it_says() -> None:
    def fail() -> None:
        canary = CANARY
        try:
            {}[canary]
        except KeyError as error:
            raise ValueError(f"the batch\nC4nary is [b'C4nary']: C4naryError is\n  {canary}") from error

    with pytest.raises(ValueError, match="the batch") as raised:
        fail()
    frames = frames_of(raised.value)
    assert CANARY not in frames.replace("C4naryError\n", "")
    assert re.findall(r"in (\w+)$", frames, re.MULTILINE)[0::2] == ["fail", "fail"]
    assert summary_of(raised.value) == "ValueError from KeyError"
    assert summary_of(ImportError("no module named x")) == "ImportError: no module named x"
    assert without_values("I0000 C4nary\n2026 WARNING C4nary\nC4nary: Error\n") == ""


def test_the_place_is_one_of_our_own(tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        open_dataset(tmp_path)
    assert re.fullmatch(r"\w+Error in pipeline/dataset/manifest.py, line \d+", summary_of(raised.value))


READER = """
import tensorflow as tf

def rows(token):
    for number in range(60):
        yield {"id": number, "n": "C4nary" if number == 3 else number, "u": "C4nary" if number == 5 else "1",
               "c": "C4nary" if number == 7 else "a"}

def fail(token):
    yield from rows(token)
    raise ValueError(f"cannot log in with {token}")

def preprocessing_fn(inputs, outputs):
    outputs["x"] = tf.strings.to_number(inputs["u"])
    return outputs

def breaking(inputs, outputs):
    from recordmill.pipeline.build.worker import batch
    batch.as_tensor = lambda column: [float(str(value)) for value in column.to_pylist()]
    return outputs
"""
SPEC = """
name: canary
source: {{format: python, rows: "reader:{rows}", options: {{token: "SECRET"}}}}
key: id
features: {{n: {{kind: number}}, {more}}}
rejects: {{max_share: {share}}}
"""
CLASS = "c: {kind: category, classes: [a, b]}"
BUILDS = {
    "succeeds": (SPEC.format(rows="rows", more=CLASS, share=0.5) + "label: c\n", 0, "canary"),
    "fails in the user's code": (SPEC.format(rows="fail", more=CLASS, share=0.5), 1, r"cannot log in with \*\*\*"),
    "too many rejects": (SPEC.format(rows="rows", more=CLASS, share=0.001), 5, "a number.* a string"),
    "fails in the graph": (
        SPEC.format(rows="rows", more="u: {kind: raw}", share=0.5) + "preprocessing: reader:preprocessing_fn\n",
        1,
        r"`reader:preprocessing_fn` failed: InvalidArgumentError; the row: '\d+'",
    ),
    "fails in our code": (
        SPEC.format(rows="rows", more="u: {kind: raw}", share=0.5) + "preprocessing: reader:breaking\n",
        1,
        r"ValueError in pipeline/[\w/]+\.py, line \d+",
    ),
    "a URL that cannot be read": (
        "name: a\nsource: {format: csv, path: 'https://u:SECRET@h/a.csv?SECRET'}\nfeatures: {n: {kind: number}}\n",
        1,
        r"https://\*\*\*@h/a.csv",
    ),
    "a bucket that cannot be read": (
        "name: a\nsource: {format: csv, path: 's3://AKIA:SECRET@b/a.csv?t=SECRET'}\nfeatures: {n: {kind: number}}\n",
        1,
        r"s3://\*\*\*@b/a.csv\?\*\*\*: ",
    ),
}
BUILDS["fails in a worker process"] = BUILDS["fails in the graph"]
AT_NIGHT = ["fails in a worker process", "a bucket that cannot be read"]


def forms(secret: str) -> set[bytes]:
    """A secret as text, URL, escaped text, and in base64 wherever it begins in there."""
    coded = [base64.b64encode(b"x" * begin + secret.encode())[4 if begin else 0 : -4] for begin in range(3)]
    texts = secret, quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]
    return {*coded, *(text.encode() for text in texts), secret.encode().hex().encode()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in AT_NIGHT)) for name in BUILDS]
)
def test_no_build_tells_the_canary(name: str, tmp_path: Path) -> None:
    spec, status, message = BUILDS[name]
    for folder in ("in", "temporary"):
        (tmp_path / folder).mkdir()
    (tmp_path / "in/reader.py").write_text(READER)
    (tmp_path / "in/dataset.yaml").write_text(spec.replace("SECRET", SECRET))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(tmp_path / "temporary"),
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "ANY_OTHER_VARIABLE": SECRET,
        "DATABASE_URL": f"postgres://u:{SECRET}@h/db",
    }
    options = ["--", f"--s3_secret_access_key={SECRET}", f"--s3_session_token={SECRET}"]
    processes = ["--processes", "2"] if "worker process" in name else []
    command = ["build", "in/dataset.yaml", "-o", "out", "--metrics", "out.prom", *processes, *options]
    done = recordmill(*command, cwd=tmp_path, environment=environment)
    assert (done.returncode, re.search(message, done.stderr) is not None) == (status, True), done.stderr
    assert CANARY not in done.stdout + done.stderr
    written = [path for path in tmp_path.rglob("*") if tmp_path / "in" not in path.parents]
    texts = [done.stdout.encode(), done.stderr.encode(), *(str(path).encode() for path in written)]
    texts += [path.read_bytes() for path in written if path.is_file()]
    assert not [text for text in texts for form in forms(SECRET) if form in text]
    told = [path for folder in ("out", "temporary") for path in (tmp_path / folder).rglob("*")]
    assert not [path for path in told if CANARY in path.name]
    # Scratch holds the rows themselves while a build is at work, or waits to go on.
    holding = [path for path in told if path.is_file() and "scratch" not in path.parts]
    assert not [path for path in holding if CANARY.encode() in path.read_bytes()]
    logs = [path for path in told if path.suffix == ".log"]
    assert len(logs) == (spec == BUILDS["fails in our code"][0])
    for log in logs:
        assert str(log) in done.stderr
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        assert "pipeline/build/worker/build_shard.py" in log.read_text()
    if status == 0:
        (manifest,) = (tmp_path / "out/versions").glob("*/dataset.json")
        code = json.loads(manifest.read_text())["provenance"]["user_code"]
        assert list(code["files"]) == ["reader.py"]
