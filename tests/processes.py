"""Processes that are forked from that of the tests, which has imported and compiled what they need.

To start Python and to import everything takes a second, most of what such a test would cost.
Signals, exit status, standard streams, and what is left of a process that is killed are those of
any other. What a new process alone can show, such as that a command imports what it uses, is tested
with new ones.
"""

import gc
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from functools import partial
from subprocess import Popen

from ephemeral_crawl.__main__ import main


def command(*words, **options):
    """Start `ephemeral-crawl` with these words; the options are those of `Popen`."""
    return forked(partial(main, [*map(str, words)]), **options)


def forked(function, **options):
    """Call a function in a process of its own; the options are those of `Popen`, without `env`."""
    become = partial(_become, function)  # Popen waits until its child has closed a pipe
    return Popen(["forked"], preexec_fn=become, restore_signals=False, text=True, **options)


def _become(function):
    gc.freeze()
    # The numbers of the files of the tests stay taken: an object may end here that closes its own.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/dev/fd")):
        if number > 2 and number != nowhere:
            os.dup2(nowhere, number, inheritable=False)
    try:
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
        sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__
        logging.root.handlers.clear()
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        status = _status(function)
        threading._shutdown()  # waits for those that are no daemons
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        os._exit(status)


def _status(function):
    """Return the exit status of a program that calls a function."""
    try:
        function()
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
            return 1
        return stop.code or 0
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 0
