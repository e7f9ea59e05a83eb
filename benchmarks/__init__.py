"""The speed that the project promises, measured side by side in one run: `python -m benchmarks`, or `make bench`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # for its servers
