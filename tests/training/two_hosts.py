"""Launchers of two hosts, which are both this one."""

import contextlib
import socket
import subprocess
import sys

REUSE = (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def launch_on_two_hosts(dear, ranks, options, program):
    """Runs `program` by `dear launch` with so many ranks on the host that leads and on the other: the leader's exit code, and
    what both say."""
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(socket.socket())
        held.bind(("127.0.0.1", 0))
        held.setsockopt(*REUSE)
        meeting = held.getsockname()

        def start(count):
            words = [dear, "launch", "-n", str(count), "--hosts", "2", "--meet", f"{meeting[0]}:{meeting[1]}", *options]
            pipe = subprocess.PIPE
            return stack.enter_context(subprocess.Popen([*words, "--", *program], stdout=pipe, stderr=pipe, text=True))

        leader = start(ranks[0])
        while not _listens(meeting):
            if leader.poll() is not None:
                sys.exit(f"the launcher that leads ended: {leader.communicate()}")
        other = start(ranks[1])
        said = [other.communicate(timeout=150), leader.communicate(timeout=150)]
    out, errors = ("".join(texts) for texts in zip(*said, strict=True))
    return subprocess.CompletedProcess(leader.args, leader.returncode, out, errors)


def _listens(place):
    with socket.socket() as guest:
        return guest.connect_ex(place) == 0
