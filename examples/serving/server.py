"""Serves SavedModels by the REST interface of TensorFlow Serving, for a try: `POST /v1/models/NAME:predict`.

    python examples/serving/server.py demo/models --port 8501

It answers as `tensorflow_model_server --rest_api_port=8501 --model_name=shapes --model_base_path=…/shapes` does,
one request at a time. It needs TensorFlow and no Recordmill.
"""

import argparse
import base64
import json
import os
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

MOST_BYTES = 64 << 20  # 64 MiB a request


def newest(models: Path) -> dict[str, Any]:
    """Loads the newest version of each model below a folder: NAME/VERSION/saved_model.pb."""
    found: dict[str, Path] = {}
    for file in sorted(models.glob("*/*/saved_model.pb"), key=lambda file: int(file.parent.name)):
        found[file.parents[1].name] = file.parent
    return {name: tf.saved_model.load(str(folder)) for name, folder in found.items()}


def predict(model: Any, body: Mapping[str, Any]) -> dict[str, Any]:
    """Answers `{"instances": [{input: value, …}, …]}` and `{"inputs": {input: [value, …], …}}`; bytes are `{"b64": …}`.

    Where there is one input, or one output, its name may be missing, or is.
    """
    signature = model.signatures[body.get("signature_name", "serving_default")]
    specs = signature.structured_input_signature[1]
    columns = body["inputs"] if "inputs" in body else _columns(body["instances"], list(specs))
    if len(specs) == 1 and not isinstance(columns, dict):
        columns = dict.fromkeys(specs, columns)
    given = {name: tf.constant(_decoded(columns[name]), spec.dtype) for name, spec in specs.items()}
    outputs = {name: _plain(tensor.numpy().tolist()) for name, tensor in signature(**given).items()}
    (only, *others) = outputs.values()
    if "inputs" in body:
        return {"outputs": outputs if others else only}
    rows = zip(*outputs.values(), strict=True)
    return {"predictions": [dict(zip(outputs, row, strict=True)) for row in rows] if others else only}


def _columns(instances: list[Any], names: list[str]) -> dict[str, list[Any]]:
    if len(names) == 1:
        instances = [each if isinstance(each, dict) and "b64" not in each else {names[0]: each} for each in instances]
    return {name: [each[name] for each in instances] for name in names}


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    models: dict[str, Any]

    def do_POST(self) -> None:
        """Predicts; a request that is wrong gets 400 and the reason, as TensorFlow Serving gives it."""
        name = self.path.removeprefix("/v1/models/").removesuffix(":predict")
        length = int(self.headers.get("Content-Length", 0))
        if name not in self.models or not self.path.endswith(":predict"):
            return self._answer(404, {"error": f"there is no model {name!r} among {', '.join(self.models)}"})
        if length > MOST_BYTES:
            return self._answer(413, {"error": f"more than {MOST_BYTES:,} bytes"})
        try:
            answer = predict(self.models[name], json.loads(self.rfile.read(length)))
        except (ValueError, KeyError, TypeError, tf.errors.OpError) as error:
            return self._answer(400, {"error": f"{type(error).__name__}: {error}"[:500]})
        return self._answer(200, answer)

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


def main() -> None:
    """Loads and serves."""
    parser = argparse.ArgumentParser(description="Serves SavedModels as TensorFlow Serving does, for a try.")
    parser.add_argument("models", type=Path, help="the folder of models: NAME/VERSION/saved_model.pb")
    parser.add_argument("--port", type=int, default=8501)
    arguments = parser.parse_args()
    Handler.models = newest(arguments.models)
    server = HTTPServer(("127.0.0.1", arguments.port), Handler)
    print(f"Serves {', '.join(Handler.models)} at http://127.0.0.1:{server.server_port}/v1/models", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
