"""Runs that span several processes, on one or more hosts."""

import contextlib
import os
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from nvgd._support.errors import InputError, first_line
from nvgd._support.files import locked

# A process that sends no heartbeat for this long counts as lost.
HEARTBEAT_SECONDS = 20
# Timeout for all processes to connect at the start.
START_SECONDS = 120

# Messages of collectives about a process that does not answer; the error type is not always JAX's.
_LOST = re.compile(r"Gloo|UNAVAILABLE|coordination service|NCCL", re.IGNORECASE)


def join(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    """Join a run of several processes; do nothing if no argument is given.

    Arguments:
        coordinator: HOST:PORT of process 0, reachable from all processes.
        num_processes: number of processes.
        process_id: index of this process, from 0.
    """
    given = {"coordinator": coordinator, "num-processes": num_processes, "process-id": process_id}
    missing = [f"--{name}" for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return
    if coordinator is None or num_processes is None or process_id is None:
        raise InputError(
            "several processes need --coordinator, --num-processes and --process-id; missing: "
            f"{', '.join(missing)}."
        )
    port = re.fullmatch(r"[^\s:/]+:(\d{1,5})", coordinator)
    if port is None or not 0 < int(port[1]) < 2**16:
        raise InputError(
            f"coordinator must be HOST:PORT of process 0, with a port below 65536, got "
            f"{coordinator!r}."
        )
    if num_processes < 1 or not 0 <= process_id < num_processes:
        raise InputError(
            f"process-id must be from 0 to num-processes - 1, got {process_id} of {num_processes}."
        )
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=START_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except RuntimeError as error:
        raise InputError(
            f"process {process_id} of {num_processes} found no others at {coordinator} within "
            f"{START_SECONDS} seconds: start all of them, with the address of process 0. "
            f"({first_line(error)})"
        ) from error


def is_first_process() -> bool:
    """Whether this is process 0, which writes files and prints."""
    return jax.process_index() == 0


def agreed(number: int) -> int:
    """Process 0's value of `number`, for decisions on which all processes must agree.

    Such decisions may depend on clocks and files, which differ between processes.
    """
    if jax.process_count() == 1:
        return number
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return int(broadcast_one_to_all(np.int64(number)))


@contextlib.contextmanager
def locked_together(path: Path, argument: str = "out") -> Iterator[None]:
    """Context manager: process 0 locks the directory (`locked`) for all processes of the run."""
    with contextlib.ExitStack() as stack:
        refusal = None
        if is_first_process():
            try:
                stack.enter_context(locked(path, argument))
            except InputError as error:
                refusal = error
        if not agreed(refusal is None):
            # Every process ends with the same kind of error.
            raise refusal or InputError(f"{argument} was refused to process 0, got {str(path)!r}.")
        yield


@contextlib.contextmanager
def ends_together() -> Iterator[None]:
    """Context manager: if one of several processes fails, exit at once, so that the others notice.

    An orderly exit would wait for the other processes, which wait for this one in the next step.
    """
    try:
        yield
    except InputError:
        # Every process raises the same error and exits normally.
        raise
    except BaseException as error:
        if jax.process_count() == 1:
            raise
        name = f"process {jax.process_index()} of {jax.process_count()}"
        if isinstance(error, KeyboardInterrupt):
            what, code = f"{name} was interrupted and ends", 130
        elif _LOST.search(str(error)):
            what, code = (
                f"{name} has lost another one and ends ({str(error).splitlines()[0][:200]})",
                1,
            )
        else:
            traceback.print_exc()
            what, code = f"{name} failed and ends", 1
        again = "Start all of them again, any number: the run goes on from its last checkpoint."
        print(f"nvgd: {what}. {again}", file=sys.stderr, flush=True)
        os._exit(code)
