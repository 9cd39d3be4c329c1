"""Makes the README's links absolute, as a package index needs them; pyproject.toml holds everything else."""

import re
from pathlib import Path

from setuptools import setup

HOME = "https://github.com/recordmill/recordmill"
HERE = Path(__file__).parent
VERSION = re.search(r'VERSION = "(.+)"', (HERE / "recordmill/pipeline/__init__.py").read_text())[1]

readme = re.sub(r"(!\[.*?\]\()(?!https?:|#)", rf"\g<1>{HOME}/raw/v{VERSION}/", (HERE / "README.md").read_text("utf-8"))
readme = re.sub(r"(\]\()(?!https?:|#)", rf"\g<1>{HOME}/blob/v{VERSION}/", readme)
setup(long_description=readme, long_description_content_type="text/markdown")
