"""Sends photos to a served model and prints the names of their classes; needs Python alone.

python examples/serving/client.py demo/data/images/000017.png --model shapes --port 8501
"""

import argparse
import base64
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path


def predict(url: str, photos: list[bytes]) -> list[dict[str, list[object]]]:
    """Gives `classes` and `scores` for each photo, from the best to the worst."""
    instances = [{"image": {"b64": base64.b64encode(photo).decode()}} for photo in photos]
    request = urllib.request.Request(url, json.dumps({"instances": instances}).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return list(json.load(answer)["predictions"])


def main() -> None:
    """Sends and prints."""
    parser = argparse.ArgumentParser(description="Sends photos to a served model.")
    parser.add_argument("photos", nargs="+", type=Path)
    parser.add_argument("--model", default="shapes")
    parser.add_argument("--port", type=int, default=8501)
    arguments = parser.parse_args()
    url = f"http://127.0.0.1:{arguments.port}/v1/models/{arguments.model}:predict"
    try:
        answers = predict(url, [photo.read_bytes() for photo in arguments.photos])
    except urllib.error.HTTPError as error:
        sys.exit(f"{url} answers {error.code}: {error.read().decode(errors='replace')}")
    except OSError as error:
        sys.exit(f"{url} does not answer, or a photo cannot be read: {error}")
    for photo, answer in zip(arguments.photos, answers, strict=True):
        best = zip(answer["classes"], answer["scores"], strict=True)
        print(f"{photo.name}: {', '.join(f'{name} {score:.3f}' for name, score in best)}")


if __name__ == "__main__":
    main()
