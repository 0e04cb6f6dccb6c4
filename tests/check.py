"""All checks in one command: `uv run python tests/check.py`; arguments go to pytest."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FRAMES = ["correlate", "geometry", "partition", "two_time", "bad_frames"]  # tests of what is written for two backends
CHECKS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["mypy"],
    "import order": ["lint-imports"],
    "tests and doctests": ["pytest", *sys.argv[1:]],
    "frames on JAX": ["pytest", *(f"tests/test_{name}.py" for name in FRAMES)],
}
BACKENDS = {"frames on JAX": {"BAYESFIT_BACKEND": "jax"}}


def main() -> int:
    """Run every check, also after a failure; the exit code says whether all passed."""
    bin_folder = Path(sys.executable).parent
    failed = []
    for name, (program, *arguments) in CHECKS.items():
        print(f"== {name}", flush=True)
        environment = os.environ | BACKENDS.get(name, {})
        if subprocess.run([bin_folder / program, *arguments], cwd=ROOT, env=environment, check=False).returncode:
            failed.append(name)
    print("all checks passed" if not failed else f"FAILED: {', '.join(failed)}", flush=True)
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
