"""What ends this process is told to the other ranks at once: an exception that nothing catches, and the end of the main thread."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import stat
import sys
import threading
import traceback
from types import TracebackType
from typing import Any, Optional

import torch.distributed as dist

from . import _C

_LONGEST = 400  # characters of the text of an exception
_FOREIGN = tuple(os.path.join(name, "") for name in (os.path.dirname(__file__), os.path.join("site-packages", "torch")))
# Errors that say what happened to another rank, or to all.
_OF_THE_GROUP = (_C.TransportError, _C.TimeoutError, _C.MismatchError)

_training_threads: set[int] = set()  # identifiers of those that made a training
_told = False
_stacks: Any = None  # the file of _write_stacks_when_asked()
_forked = False  # this process is the child of one that trains, and does not train itself


def reason_of(error: Optional[BaseException]) -> str:
    """What the other ranks are told; "" where there is no error, and never for one."""
    return "" if error is None else str(error) if isinstance(error, _C.Error) else repr(error)


def trains_here() -> None:
    """Called by whoever makes a training: exceptions that end this thread end the training."""
    global _forked
    _forked = False
    _training_threads.add(threading.get_ident())
    install()
    _write_stacks_when_asked()


def _write_stacks_when_asked() -> None:
    """SIGUSR2 writes the stacks of all threads into the file that a launcher names, unless the program uses that signal itself."""
    global _stacks
    path = os.environ.get("DEAR_STACKS", "")
    if not path or _stacks is not None or signal.getsignal(signal.SIGUSR2) != signal.SIG_DFL:
        return
    if threading.current_thread() is not threading.main_thread():
        return  # Python changes signals there alone
    with contextlib.suppress(OSError):
        _stacks = open(path, "w")
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # in force again when the interpreter ends
        faulthandler.register(signal.SIGUSR2, file=_stacks, all_threads=True)
        _C.note_stacks(signal.SIGUSR2)


def install() -> None:
    """Puts the hooks in place, around those of the program; again where the program has put others there since."""
    if not getattr(sys.excepthook, "of_dear", False):
        sys.excepthook = _around_excepthook(sys.excepthook)
    if not getattr(threading.excepthook, "of_dear", False):
        threading.excepthook = _around_thread_excepthook(threading.excepthook)


def cause_of(kind: type[BaseException], value: Optional[BaseException], where: Optional[TracebackType]) -> str:
    """ "ValueError: poison batch (train.py:12)": type, text and the innermost line that is the program's own."""
    text = " ".join(str(value).split()) if value is not None else ""
    if issubclass(kind, _OF_THE_GROUP):
        return text
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "..."
    frames = traceback.extract_tb(where) if where is not None else []
    own = [frame for frame in frames if not any(part in frame.filename for part in _FOREIGN)] or list(frames)
    place = f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else ""
    return f"{kind.__name__}{': ' if text else ''}{text}{place}"


def tell(kind: type[BaseException], value: Optional[BaseException], where: Optional[TracebackType]) -> None:
    """Ends all groups of this process with the exception, once."""
    global _told
    if _told or _forked:
        return
    _told = True
    cause = cause_of(kind, value, where)
    if not issubclass(kind, _OF_THE_GROUP):
        _record(cause)
    _C.abort_groups(cause)


def _record(cause: str) -> None:
    """For the launcher, which shows the first cause when all ranks have ended: a line in a pipe of its own."""
    path = os.environ.get("DEAR_CAUSES", "")
    # Other programs that a rank starts have the path, too.
    trains = bool(_training_threads) or (dist.is_available() and dist.is_initialized())
    if not path or not (trains or path.startswith(f"/proc/{os.getppid()}/")):
        return
    line = f"{os.environ.get('DEAR_MEMBER') or os.environ.get('RANK', '0')} {cause}"
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISFIFO(os.fstat(file).st_mode):
                os.write(file, line.encode(errors="replace")[:4000] + b"\n")
        finally:
            os.close(file)


def _interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _around_excepthook(before: Any) -> Any:
    def hook(kind: type[BaseException], value: BaseException, where: Optional[TracebackType]) -> None:
        if not _interactive():
            with contextlib.suppress(Exception):
                tell(kind, value, where)
        before(kind, value, where)

    hook.of_dear = True  # type: ignore[attr-defined]
    return hook


def _around_thread_excepthook(before: Any) -> Any:
    def hook(arguments: Any) -> None:
        if threading.get_ident() in _training_threads and arguments.exc_type is not SystemExit:
            with contextlib.suppress(Exception):
                tell(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
        before(arguments)

    hook.of_dear = True  # type: ignore[attr-defined]
    return hook


def _in_child() -> None:
    global _forked
    _forked = _forked or bool(_training_threads) or (dist.is_available() and dist.is_initialized())
    _training_threads.clear()


os.register_at_fork(after_in_child=_in_child)


def at_end_of_main_thread(act: Any) -> None:
    """Calls `act` when the main thread has ended, before Python waits for others that live, where none but the main thread has
    trained. Where Python offers no such moment it is called at the end of the process alone."""

    def end() -> None:
        if _training_threads == {threading.main_thread().ident}:
            act()
            _C.leave_groups()

    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(end)
