"""Starts the `dear` command as the processes that a user would have, and checks that nothing of them is left.

Every test file here is run as  FILE PATH_OF_DEAR [unittest's arguments].
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

LIMIT = 200  # seconds for anything to happen; only a test that fails waits so long
MARKER = "DEAR_TEST_MARKER"
LAUNCHERS = ("DEAR_", "LOCAL_", "MASTER_", "TORCHELASTIC_", "GROUP_", "OMPI_", "PMI", "MPI_", "SLURM_")
# Of tests of MPI and of `dear launch --elastic` that run beside this one.
OF_OTHERS = ("vader_segment", "sm_segment", "ucx_shm", "mpich_", "dear-making-", "dear-memory-")
POLICIES = ["serial", "wfbp", "dear-replicated", "dear"]
TINY = (
    "--data text.txt --layers 2 --width 32 --heads 2 --context 16 --batch 2 --steps 4 --threads 1 --sample 0".split()
)

dear = ""


def shared_memory():
    """Files in shared memory that may be left by a job here."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith(OF_OTHERS)}


def main():
    global dear
    dear = os.path.abspath(sys.argv.pop(1))
    unittest.main(module="__main__")


def options(*changes):
    """TINY with options changed or added: options("--steps", 10, "--workers", 2)."""
    changes = [str(change) for change in changes]
    merged = dict(zip(TINY[::2], TINY[1::2])) | dict(zip(changes[::2], changes[1::2]))
    return [word for option in merged.items() for word in option]


def outside_of_launchers():
    """Our own environment, as if no launcher had started us."""
    of_torchrun = ("RANK", "WORLD_SIZE", "NODE_RANK")
    return {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS) and k not in of_torchrun}


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().decode(errors="replace").split("\0")
    except OSError:  # it ended, or is another user's
        return {}
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def until(happened, what):
    """Polls: of a process that we did not start ourselves nothing else tells that it is there."""
    deadline = time.monotonic() + LIMIT
    while not (found := happened()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {LIMIT} s")
    return found


class Job:
    """A command that runs, with all the processes that it starts: they inherit a marker that no other job has."""

    def __init__(self, command, folder, environment):
        self.marker = uuid.uuid4().hex
        self.output = b""
        everything = outside_of_launchers() | {"TMPDIR": os.path.join(folder, "tmp"), MARKER: self.marker}
        self.process = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            env=everything | {name: str(value) for name, value in environment.items()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )

    def read_until(self, text):
        """Until `text` stands in the standard output."""
        stdout = self.process.stdout.fileno()
        while text.encode() not in self.output:
            readable, _, _ = select.select([stdout], [], [], LIMIT)
            piece = os.read(stdout, 1 << 16) if readable else b""
            if not piece:
                raise AssertionError(f"no '{text}' in the output:\n{self.output.decode()}\n{self.end().stderr}")
            self.output += piece

    def end(self):
        """The ended command: returncode (negative for a signal), stdout, stderr."""
        stdout, stderr = self.process.communicate(timeout=LIMIT)
        output = (self.output + stdout).decode()
        return subprocess.CompletedProcess(self.process.args[:2], self.process.returncode, output, stderr.decode())

    def pids(self):
        return [int(p) for p in os.listdir("/proc") if p.isdigit() and environment_of(p).get(MARKER) == self.marker]

    def pid_of_rank(self, rank):
        """As soon as the rank's program has started."""
        with_rank = lambda: [pid for pid in self.pids() if environment_of(pid).get("RANK") == str(rank)]
        return until(with_rank, f"the start of rank {rank}")[0]

    def wait_until_gone(self):
        deadline = time.monotonic() + LIMIT
        while pids := self.pids():
            try:
                watched = os.pidfd_open(pids[0])
            except ProcessLookupError:
                continue
            try:
                readable, _, _ = select.select([watched], [], [], max(0, deadline - time.monotonic()))
            finally:
                os.close(watched)
            if not readable:
                raise AssertionError(f"process {pids[0]} of {self.process.args} is left")

    def kill(self):
        while pids := self.pids():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        if self.process.returncode is None:
            self.process.communicate()


class Case(unittest.TestCase):
    """Each test has a folder with text.txt, in which commands run."""

    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(self.path("tmp"))
        words = ["to", "be", "or", "not", "that", "is", "the", "question", "whether", "nobler"]
        self.write("text.txt", "".join(words[i * i * i % 997 % 10] + (" " if i % 8 else "\n") for i in range(1500)))
        self.shared_memory = shared_memory()

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def read_json(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def files(self):
        """The content of every file in the folder, and in its folder for temporary files."""
        content = {}
        for folder, _, names in os.walk(self.folder):
            for path in (os.path.join(folder, name) for name in names):
                with open(path, "rb") as file:
                    content[os.path.relpath(path, self.folder)] = file.read()
        return content

    def start(self, *command, environment=None):
        job = Job(command, self.folder, environment or {})
        self.addCleanup(job.kill)
        return job

    def train(self, *changes, environment=None):
        return self.start(dear, "train", *options(*changes), environment=environment)

    def end(self, job):
        """How it ended, once all of its processes have gone."""
        ended = job.end()
        job.wait_until_gone()
        self.assertEqual(shared_memory() - self.shared_memory, set())
        self.assertEqual(os.listdir(self.path("tmp")), [])
        return ended

    def succeed(self, job):
        ended = self.end(job)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), ended)
        return ended.stdout

    def results(self, *changes):
        """The JSON of a training that succeeds."""
        self.succeed(self.train(*changes, "--json", "results.json"))
        return self.read_json("results.json")

    def assert_names(self, rank, text):
        """A sentence may name other ranks that are missing too: "ranks 0, 2 did not come"."""
        self.assertRegex(text, rf"\branks? (\d+, )*{rank}\b")
