"""Strangers: processes that connect to the ports of a job, and the ports that a job has."""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

KINDS = ("garbage", "half-open", "replayed", "fields", "user")
NOBODY = 65534
MAGIC = b"dearmet3"  # dear/base/admission/message.cpp


class Port(NamedTuple):
    label: str
    family: int  # 0: a file
    type: int
    address: Any


# ---- ports


def _tcp(text: str, master: int) -> Port:
    digits, port = text.split(":")
    number = int(port, 16)
    label = "MASTER_PORT" if number == master else "another TCP port"
    if len(digits) > 8:
        return Port(label, socket.AF_INET6, socket.SOCK_STREAM, ("::1", number))
    host = socket.inet_ntoa(struct.pack("=I", int(digits, 16)))
    return Port(label, socket.AF_INET, socket.SOCK_STREAM, (host if host.startswith("127.") else "127.0.0.1", number))


def listening(master: int) -> Iterator[tuple[str, Port]]:
    """The inode and the port of each socket of this host that listens."""
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}") as file:
            next(file)
            for line in file:
                words = line.split()
                if words[3] != "0A":
                    break  # those that listen come first
                yield words[9], _tcp(words[1], master)
    with open("/proc/net/unix", errors="replace") as file:
        for line in file:
            words = line.split()
            if len(words) == 8 and words[3] == "00010000" and words[7].startswith("@"):
                label = "@dear-... (meeting)" if words[7].startswith("@dear-") else "@... (kernel's name)"
                yield words[6], Port(label, socket.AF_UNIX, int(words[4]), "\0" + words[7][1:])


def has(pids: Iterable[int], inode: str) -> bool:
    """Whether one of these processes has the socket."""
    for pid in pids:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as files:
            for file in files:
                with contextlib.suppress(OSError):
                    if os.readlink(file.path) == f"socket:[{inode}]":
                        return True
    return False


# ---- strangers


def changed(hello: bytes, draw: random.Random) -> Iterator[bytes]:
    """A hello of which one byte, or one field of its heading or of its numbers, is another."""
    while True:
        for place in range(len(hello)):
            yield hello[:place] + bytes([hello[place] ^ draw.randrange(1, 256)]) + hello[place + 1 :]
        for kind in (*range(10), 2**31, 2**32 - 1):
            yield hello[:8] + struct.pack("<I", kind) + hello[12:]
        for length in (0, 1, 1024, 1025, 65536, 2**31, 2**32 - 1):
            yield hello[:12] + struct.pack("<I", length) + hello[16:]
            yield hello[:16] + struct.pack("<I", length) + hello[20:]
        for number in (b"-1", b"0", b"1", b"2", b"99999999999", b"", b"x", bytes(900)):
            rest = hello[16 + 4 + struct.unpack("<I", hello[16:20])[0] :] if hello.startswith(MAGIC) else hello
            text = struct.pack("<I", len(number)) + number + rest
            yield hello[:12] + struct.pack("<I", len(text)) + text


def garbage(draw: random.Random) -> bytes:
    return draw.choice(
        [
            draw.randbytes(draw.choice([1, 8, 60, 1000, 70000])),
            bytes(draw.choice([8, 16, 64, 4096])),
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            MAGIC + struct.pack("<II", draw.randrange(9), 2**32 - 1) + draw.randbytes(100),
            struct.pack("<I", 2**32 - 1) * draw.randrange(1, 300),
        ]
    )


class Stranger:
    """A process that is told of ports and phases in lines, and tells when it has done its part of a meeting. While ranks train, its
    priority is the lowest."""

    def __init__(self, kind: str, recorded: dict[int, bytes], options: argparse.Namespace, seed: int) -> None:
        heard, self.orders = os.pipe()
        self.told, report = os.pipe()
        self.pid = os.fork()
        if self.pid > 0:
            os.close(heard)
            os.close(report)
            return
        code = 1
        try:
            os.close(self.orders)
            os.close(self.told)
            if kind == "user":
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            self._kind, self._recorded, self._options, self._draw = kind, recorded, options, random.Random(seed)
            self._fields = {type_: changed(hello, self._draw) for type_, hello in recorded.items()}
            most = options.half_open if kind == "half-open" else 64
            self._held: collections.deque[socket.socket] = collections.deque(maxlen=min(most, options.files - 100))
            self._live(heard, report)
            code = 0
        finally:
            os._exit(code)

    def say(self, **what: Any) -> None:
        os.write(self.orders, (json.dumps(what) + "\n").encode())

    def end(self) -> dict[str, Any]:
        os.close(self.orders)
        with os.fdopen(self.told) as report:
            lines = report.read().splitlines()
        os.waitpid(self.pid, 0)
        return dict(json.loads(lines[-1]))

    def _live(self, heard: int, report: int) -> None:
        ports: dict[str, Port] = {}
        resting: dict[Port, float] = {}
        phase, turn, unread = "before", 0, b""
        counts: collections.Counter[str] = collections.Counter()
        quota = {"half-open": self._options.half_open, "fields": 200}.get(self._kind, 100)
        next_at, begin, used = time.monotonic(), 0.0, 0.0
        while True:
            if select.select([heard], [], [], max(0.0, next_at - time.monotonic()))[0]:
                data = os.read(heard, 65536)
                if not data:
                    break
                *lines, unread = (unread + data).split(b"\n")
                for order in map(json.loads, lines):
                    phase = order.get("phase", phase)
                    if "port" in order:
                        label, family, type_, address = order["port"]
                        address = tuple(address) if isinstance(address, list) else address
                        ports[order["name"]] = Port(label, family, type_, address)
                    if "gone" in order:
                        ports.pop(order["gone"], None)
                if phase == "after" and begin == 0.0:
                    os.nice(19)
                    begin, used = time.monotonic(), time.process_time()
                continue
            turn += 1
            now = time.monotonic()
            open_ = [port for port in ports.values() if resting.get(port, 0.0) <= now]
            if not open_:
                next_at = now + 0.01
                continue
            port = open_[turn % len(open_)]
            came = self._visit(port)
            counts[f"{port.label}/{phase}/{'came' if came else 'refused'}"] += 1
            counts[phase] += came
            if phase == "at" and came and counts[phase] == quota:
                os.write(report, b"enough\n")
            hurries = self._kind == "half-open" and phase == "at" and counts[phase] < quota
            if hurries and not came:
                resting[port] = time.monotonic() + 0.1
            next_at = time.monotonic() if hurries else max(next_at + 1 / self._options.rate, time.monotonic() - 0.1)
        seconds = time.monotonic() - begin
        told = {"counts": counts, "share": (time.process_time() - used) / seconds, "held": len(self._held)}
        os.write(report, (json.dumps(told) + "\n").encode())

    def _visit(self, port: Port) -> bool:
        """Whether somebody listened."""
        is_another = os.geteuid() == 0 and (port.family == 0 or port.label.startswith("@dear"))
        try:
            if is_another:
                os.seteuid(NOBODY)
            if port.family == 0:  # a pipe of the launcher
                with open(port.address, "wb", buffering=0) as pipe:
                    return bool(pipe.write(b"0 again 0\n1 comes\n"))
            guest = socket.socket(port.family, port.type)
            try:
                guest.settimeout(0.05)
                guest.connect(port.address)
                if port.family != socket.AF_UNIX and guest.getsockname() == guest.getpeername():
                    raise OSError("nobody listens, and the kernel gave this socket the port")
            except OSError:
                guest.close()
                raise
        except OSError:
            return False
        finally:
            if is_another:
                os.seteuid(0)
        with contextlib.suppress(OSError):
            for said in self._says(port.type):
                guest.sendall(said)
        if len(self._held) == self._held.maxlen:
            self._held.popleft().close()
        self._held.append(guest)
        return True

    def _says(self, type_: int) -> list[bytes]:
        known = self._recorded[type_]
        kind = self._draw.choice(KINDS[:-1]) if self._kind == "user" else self._kind
        if kind == "garbage":
            return [garbage(self._draw)]
        if kind == "replayed":
            return [known] if self._draw.random() < 0.5 else [known, known]
        return [next(self._fields[type_])] if kind == "fields" else []
