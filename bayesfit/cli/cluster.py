"""The Dask cluster that a run sends its files' curves to, if one is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bayesfit.compute.errors import SettingsError

if TYPE_CHECKING:
    from bayesfit.cli.fit_all import Where

WAIT = 10  # seconds for the scheduler to answer
AHEAD = 2  # groups for each thread of a worker: one that is fitted, and one that waits for it


@contextmanager
def on_cluster(address: str | None, together: str | None = None) -> Iterator[Where | None]:
    """What fits groups of files: the workers of the scheduler at this address; None without one.

    Raises:
        SettingsError: files `together` as one result are wanted, Dask is not installed, no scheduler answers, or it has
            no workers.
    """
    if address is None:
        yield None
        return
    if together:
        raise SettingsError("files as one result are fitted here", field="--dask", remedy="Leave it out")
    try:
        from distributed import Client
    except ImportError as error:
        remedy = 'Install it: pip install "bayesfit[dask]"'
        raise SettingsError("Dask is not installed", field="--dask", remedy=remedy) from error
    from bayesfit.cli.fit_all import Where

    try:
        client = Client(address, timeout=WAIT)
    except (OSError, ValueError) as error:
        problem, remedy = f"no scheduler answers at {address!r}", "Is it as in tcp://127.0.0.1:8786?"
        raise SettingsError(problem, field="--dask", remedy=remedy) from error
    with client:
        if not (threads := sum(client.nthreads().values())):
            remedy = f"Start some: dask worker {address}"
            raise SettingsError("the scheduler has no workers", field="--dask", remedy=remedy)
        yield Where(client.get_executor(), AHEAD * threads)
