"""Measures what a source of format `coco` costs at the size of COCO's `instances_train2017.json`.

    python benchmarks/coco.py --images 118287 --annotations 860001

CPU seconds and peak memory of a process that plans the source, which reads the JSON, and then reads all rows; and of
one that calls `json.load`, for comparison.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.options import AnnotatedImages

COLUMNS = {
    "image": Column(ColumnType.IMAGE),
    "boxes": Column(ColumnType.NUMBER, many=True, multiple=4),
    "categories": Column(ColumnType.CATEGORY, many=True),
}
CHUNK_BYTES = 8 << 20


def write(path: Path, images: int, annotations: int) -> None:
    """Writes polygons of 4 to 25 corners: about 400 bytes an annotation, as COCO's have."""
    source = random.Random(0)

    def side(most: float) -> float:
        return round(source.uniform(0, most), 2)

    with path.open("w") as file:
        listed = [{"file_name": f"{n:012}.jpg", "height": 480, "width": 640, "id": n} for n in range(images)]
        file.write(f'{{"images": {json.dumps(listed)}, "annotations": [')
        for number in range(annotations):
            polygon = [side(640) for _ in range(2 * source.randint(4, 25))]
            box = [side(300), side(200), side(300), side(250)]
            image = source.randrange(images)
            fields = {"segmentation": [polygon], "iscrowd": 0, "image_id": image, "bbox": box, "category_id": 1}
            file.write(f"{', ' if number else ''}{json.dumps({**fields, 'id': number})}")
        file.write('], "categories": [{"id": 1, "name": "cat"}]}')


def used() -> tuple[float, int]:
    """CPU seconds, and the peak of memory in MiB."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss >> 10


def measure(path: str) -> None:
    """Plans and reads, in this process."""
    before, files = used(), LocalFiles()
    source = reader_of(AnnotatedImages(format="coco", path=path, images="/images"))
    plan = source.plan(files, COLUMNS, CHUNK_BYTES)
    planned = used()
    rows = sum(block.table.num_rows for chunk in plan.chunks for block in source.read(chunk, files, COLUMNS, None))
    print(f"plan: {planned[0] - before[0]:.1f} s of CPU, {planned[1] - before[1]} MiB; {len(plan.chunks)} chunks")
    print(f"read: {used()[0] - planned[0]:.1f} s of CPU for {rows:,} rows")


def main() -> None:
    """Writes the file, and starts a process for each measurement."""
    parser = argparse.ArgumentParser(description="Measures a source of format coco.")
    parser.add_argument("--images", type=int, default=118_287)
    parser.add_argument("--annotations", type=int, default=860_001)
    parser.add_argument("--measure", help="the file to measure in this process")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "instances.json")
        write(path, arguments.images, arguments.annotations)
        print(f"{path.stat().st_size >> 20} MiB of JSON")
        subprocess.run([sys.executable, __file__, "--measure", str(path)], check=True)
        load = "import json, sys; json.load(open(sys.argv[1]))"
        show = "import resource as r; u = r.getrusage(r.RUSAGE_SELF); print(u.ru_utime + u.ru_stime, u.ru_maxrss >> 10)"
        print("json.load, CPU seconds and MiB:", end=" ", flush=True)
        subprocess.run([sys.executable, "-c", f"{load}; {show}", str(path)], check=True)


if __name__ == "__main__":
    main()
