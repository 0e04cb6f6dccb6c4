"""What runs in a worker process: `python -m bayesfit.surrogates.worker DESCRIPTOR` answers requests for curves."""

from __future__ import annotations

import os
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any


def main() -> None:
    """Receive the function, then parameters; send what it returns, or why it fails."""
    requests: Connection[Any, Any] = Connection(int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        sys.path[:] = requests.recv()
        function = requests.recv()
        requests.send("ready")
        while True:
            requests.send(_answer(function, requests.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _answer(function: Any, parameters: dict[str, float]) -> tuple[bool, Any]:
    try:
        import numpy as np

        return True, np.asarray(function(parameters), float)
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"


def _end_with(parent: int) -> None:
    """End when the parent has ended, also in the midst of a run."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
