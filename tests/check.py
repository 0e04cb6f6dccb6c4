"""All checks in one command: `uv run python tests/check.py`; arguments go to pytest."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHECKS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["mypy"],
    "import order": ["lint-imports"],
    "tests and doctests": ["pytest", *sys.argv[1:]],
}


def main() -> int:
    """Run every check, also after a failure; the exit code says whether all passed."""
    bin_folder = Path(sys.executable).parent
    failed = []
    for name, (program, *arguments) in CHECKS.items():
        print(f"== {name}", flush=True)
        if subprocess.run([bin_folder / program, *arguments], cwd=ROOT, check=False).returncode:
            failed.append(name)
    print("all checks passed" if not failed else f"FAILED: {', '.join(failed)}", flush=True)
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
