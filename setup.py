"""Packaging of Recordmill; reads only files that travel in the source distribution."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

# Which extra is for what: docs/install.md. The base reads datasets, and does nothing else.
# Pillow 13 mends its JPEG decoder, but Beam 2.77 asks for an older one: the locks override that (.ci/overrides.txt).
BASE = ["google-crc32c>=1.5", "numpy>=1.26", "pillow>=12"]
# JPEG into the batch's own memory, quick resizing; batches in bfloat16, a type that NumPy lacks.
JPEG = "simplejpeg>=1.8"
FAST = ["ml_dtypes>=0.5", "opencv-python-headless>=4.10", JPEG]
# HEIC and HEIF, which phones write.
HEIF = ["pillow-heif>=1.1"]
TENSORFLOW = ["keras>=3", "tensorflow>=2.21,<2.22"]
# The commands that look at datasets: show, versions, preview, pin, prune, verify and their kin.
CLI = ["rich>=13", "textual-image>=0.12", "typer>=0.29"]
# `recordmill report`, which every build runs too.
REPORT = [*CLI, "jinja2>=3.1", "markupsafe>=2.1", "pyarrow>=16"]
BUILD = [
    *TENSORFLOW,
    *REPORT,
    JPEG,  # so that no image chooses Pillow's decoder of JPEG
    "apache-beam>=2.77,<2.78",
    "grpcio>=1.60",
    "protobuf>=5",
    "psutil>=6",
    "pydantic>=2.9",
    "PyYAML>=6",
    "requests>=2.32",
    "sentencepiece>=0.2.1",
    "tensorflow-metadata>=1.21,<1.22",
    "tensorflow-text>=2.21,<2.22",
    "tensorflow-transform>=1.21,<1.22",
    "tfx-bsl>=1.21,<1.22",
]
# Datasets and sources in buckets; `build` has all that gs:// needs but obstore.
AWS = ["boto3", "obstore>=0.12"]
GCP = ["google-cloud-storage>=3", "obstore>=0.12"]
TOOLS = [
    "build",
    "flask-cors",  # of moto's server
    "gcp-storage-emulator",
    "hypothesis",
    "import-linter",
    "moto[s3]",
    "mypy",
    "pre-commit",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "python-hcl2",
    "ruff",
    "setuptools",
    "tensorflow-datasets",
    "types-PyYAML",
    "types-psutil",
    "wheel",
]

setup(
    name="recordmill",
    version=re.search(r'VERSION = "(.+)"', (HERE / "recordmill/pipeline/__init__.py").read_text())[1],
    description="Raw data in; a versioned, training-ready TFRecord dataset out.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    # TensorFlow and tfx-bsl have wheels up to 3.13; what the extras `tf` and `build` do not need runs on 3.14, too.
    python_requires=">=3.11,<3.15",
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["recordmill", "recordmill.*"]),
    package_data={"recordmill": ["py.typed"], "recordmill.pipeline.facts": ["*.css", "*.j2"]},
    install_requires=BASE,
    extras_require={
        "cli": CLI,
        "report": REPORT,
        "fast": FAST,
        "heif": HEIF,
        "tf": TENSORFLOW,
        "build": BUILD,
        "gcp": GCP,
        "aws": AWS,
        "s3": AWS,  # as it was called first
        "dev": [*FAST, *HEIF, *BUILD, *GCP, *AWS, *TOOLS],
    },
    entry_points={
        "console_scripts": [
            "recordmill = recordmill.__main__:main",
            "recordmill-worker = recordmill.pipeline.build.beam.worker_boot:main",
        ]
    },
)
