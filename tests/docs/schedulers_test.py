"""The files of examples/schedulers parse, agree with each other, and name what exists:  schedulers_test.py

Nothing is run. The job of Kubernetes is read by a reader of the part of YAML that it needs, which refuses the rest.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pages

FOLDER = pages.ROOT / "examples" / "schedulers"
INSTRUCTIONS = {"FROM", "RUN", "COPY", "ENV", "WORKDIR", "ENTRYPOINT"}


def scalar(text: str, place: str) -> object:
    if text.startswith('"'):
        return json.loads(text)
    if text in ("true", "false"):
        return text == "true"
    if text.lower() in ("yes", "no", "on", "off", "null", "true", "false") or not re.fullmatch(r"[\w./$-][^#&*!|>%@`{}\"]*", text) or re.search(r": |:$|\[(?!')", text):
        raise ValueError(f"{place}: '{text}' is no plain text; quote it")
    return int(text) if re.fullmatch(r"\d+", text) else text


class Yaml:
    """Mappings and lists in blocks, plain and quoted text, whole numbers, truth values, and texts of several lines behind '|'."""

    def __init__(self, text: str):
        self.lines = []  # (number, indentation, text)
        for number, line in enumerate(text.splitlines(), start=1):
            if "\t" in line or line != line.rstrip():
                raise ValueError(f"line {number}: a tab, or blanks at the end")
            if line.strip() and not line.lstrip().startswith("#"):
                self.lines.append((number, len(line) - len(line.lstrip()), line.strip()))
        self.at = 0

    def block(self, indentation: int) -> object:
        """What stands at this indentation, from here on."""
        return self.list_at(indentation) if self.lines[self.at][2].startswith("- ") else self.mapping_at(indentation)

    def nested(self, indentation: int, number: int) -> object:
        if self.at == len(self.lines) or self.lines[self.at][1] <= indentation:
            raise ValueError(f"line {number}: nothing stands below this")
        return self.block(self.lines[self.at][1])

    def here(self, indentation: int) -> bool:
        if self.at == len(self.lines) or self.lines[self.at][1] < indentation:
            return False
        if self.lines[self.at][1] > indentation:
            raise ValueError(f"line {self.lines[self.at][0]}: begins too far to the right")
        return True

    def value(self, text: str, indentation: int, number: int) -> object:
        if text == "|":
            first = self.at
            while self.at < len(self.lines) and self.lines[self.at][1] > indentation:
                self.at += 1
            return "".join(line + "\n" for _, _, line in self.lines[first : self.at])
        return scalar(text, f"line {number}") if text else self.nested(indentation, number)

    def mapping_at(self, indentation: int) -> dict:
        found: dict = {}
        while self.here(indentation):
            number, _, line = self.lines[self.at]
            if not (parts := re.fullmatch(r"([\w-]+):(?: (.+))?", line)):
                raise ValueError(f"line {number}: '{line}' is no key with its value")
            if parts[1] in found:
                raise ValueError(f"line {number}: '{parts[1]}' stands there twice")
            self.at += 1
            found[parts[1]] = self.value(parts[2] or "", indentation, number)
        return found

    def list_at(self, indentation: int) -> list:
        found: list = []
        while self.here(indentation):
            number, _, line = self.lines[self.at]
            if not line.startswith("- "):
                raise ValueError(f"line {number}: '{line}' is no item of this list")
            if re.fullmatch(r"- [\w-]+:(?: .+)?", line):  # a mapping, which begins behind the dash
                self.lines[self.at] = (number, indentation + 2, line[2:])
                found.append(self.mapping_at(indentation + 2))
            else:
                self.at += 1
                found.append(self.value(line[2:], indentation, number))
        return found


def read_yaml(text: str) -> list:
    documents = []
    for part in re.split(r"^---$", text, flags=re.MULTILINE):
        reader = Yaml(part)
        documents.append(reader.block(0))
        if reader.at != len(reader.lines):
            raise ValueError(f"line {reader.lines[reader.at][0]}: belongs to nothing")
    return documents


def read_containerfile(text: str) -> list:
    """(instruction, what follows it). ValueError for an instruction that is not known."""
    found = []
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in re.sub(r"\\\n\s*", "", kept).splitlines():
        if not line.strip():
            continue
        instruction, _, rest = line.partition(" ")
        if instruction not in INSTRUCTIONS or not rest.strip():
            raise ValueError(f"'{line}' is no instruction")
        found.append((instruction, rest.strip()))
    if not found or found[0][0] != "FROM":
        raise ValueError("it does not begin with FROM")
    return found


def read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def options_of(program: str) -> set:
    return set(re.findall(r'add_argument\(\s*"(--[\w-]+)"', read(program)))


STOPPED = int(re.search(r"^STOPPED = (\d+)", read("train.py"), re.MULTILINE)[1])


class Reader(unittest.TestCase):
    def test_reads_blocks(self):
        read_ = read_yaml("a: 1\nb:\n  - c: true\n    d: \"2\"\n  - |\n    e f\n    g: h\n---\n- x['y']\n")
        self.assertEqual(read_, [{"a": 1, "b": [{"c": True, "d": "2"}, "e f\ng: h\n"]}, ["x['y']"]])

    def test_refuses_what_is_wrong_or_unknown(self):
        for text in ("a: 1\na: 2\n", "a:\n", "a: 1\n  b: 2\n", "a:\n    b: 1\n  c: 2\n", "a:\t1\n", "a: {b: 1}\n", "a: *b\n", "a: b: c\n",
                     "- a\nb: 1\n", "a\n", "a: [1]\n", "a: yes\n", 'a: "b\n'):
            with self.subTest(text=text), self.assertRaises(ValueError):
                read_yaml(text)

    def test_refuses_instructions_that_do_not_exist(self):
        for text in ("", "RUN true\n", "FROM x\nRUM true\n", "FROM x\nRUN\n"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                read_containerfile(text)


class Kubernetes(unittest.TestCase):
    def setUp(self):
        self.documents = {document["kind"]: document for document in read_yaml(read("kubernetes/indexed_job.yaml"))}
        self.job = self.documents["Job"]
        self.pod = self.job["spec"]["template"]["spec"]
        (self.container,) = self.pod["containers"]
        self.environment = {entry["name"]: entry.get("value") for entry in self.container["env"]}

    def test_ranks_are_the_pods(self):
        spec = self.job["spec"]
        self.assertEqual(spec["completionMode"], "Indexed")
        self.assertEqual(spec["completions"], spec["parallelism"])
        self.assertEqual(self.environment["WORLD_SIZE"], str(spec["completions"]))
        self.assertEqual((self.environment["LOCAL_RANK"], self.environment["LOCAL_WORLD_SIZE"]), ("0", "1"))
        known = (pages.ROOT / "docs" / "backends.md").read_text(encoding="utf-8")
        for name in self.environment:
            self.assertIn(f"`{name}`", known)

    def test_rank_0_is_found_by_the_service(self):
        service = self.documents["Service"]
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertEqual(service["spec"]["selector"], {"job-name": self.job["metadata"]["name"]})
        self.assertEqual(self.pod["subdomain"], service["metadata"]["name"])
        self.assertEqual(self.environment["MASTER_ADDR"], f"{self.job['metadata']['name']}-0.{self.pod['subdomain']}")
        self.assertEqual(self.environment["MASTER_PORT"], str(service["spec"]["ports"][0]["port"]))

    def test_checkpoints_outlive_pods(self):
        (volume,) = self.pod["volumes"]
        (mount,) = self.container["volumeMounts"]
        self.assertEqual(volume["name"], mount["name"])
        self.assertEqual(volume["persistentVolumeClaim"]["claimName"], self.documents["PersistentVolumeClaim"]["metadata"]["name"])
        self.assertIn(f"--folder {mount['mountPath']}/", self.container["command"][2])

    def test_pods_that_were_stopped_are_replaced(self):
        by_code = self.job["spec"]["podFailurePolicy"]["rules"][0]
        self.assertEqual((by_code["action"], by_code["onExitCodes"]["values"]), ("Ignore", [STOPPED]))
        self.assertEqual(by_code["onExitCodes"]["containerName"], self.container["name"])
        self.assertEqual(self.pod["restartPolicy"], "Never")

    def test_starts_the_program_of_the_image(self):
        shell, option, script = self.container["command"]
        self.assertEqual((shell, option), ("sh", "-c"))
        subprocess.run(["sh", "-n", "-c", script], check=True)
        _, python, program, *arguments = shlex.split(script.splitlines()[-1])
        entry = json.loads(dict(read_containerfile(read("Containerfile")))["ENTRYPOINT"])
        self.assertEqual([python, program], entry)
        self.assertLessEqual({word for word in arguments if word.startswith("--")}, options_of("train.py"))


class PyTorchJob(unittest.TestCase):
    """What the Training Operator takes: it tells the ranks, and where rank 0 is."""

    def setUp(self):
        self.documents = {document["kind"]: document for document in read_yaml(read("kubernetes/pytorch_job.yaml"))}
        self.replicas = self.documents["PyTorchJob"]["spec"]["pytorchReplicaSpecs"]

    def test_one_master_and_workers_that_run_the_same(self):
        self.assertEqual(set(self.replicas), {"Master", "Worker"})
        self.assertEqual(self.replicas["Master"]["replicas"], 1)
        self.assertEqual(self.replicas["Master"]["template"], self.replicas["Worker"]["template"])
        for replica in self.replicas.values():
            # By its exit code a stopped rank would count as one that failed for good.
            self.assertEqual(replica["restartPolicy"], "OnFailure")

    def test_pods_say_what_the_operator_does_not(self):
        (container,) = self.replicas["Master"]["template"]["spec"]["containers"]
        self.assertEqual(container["name"], "pytorch")  # the one that the operator tells its ranks
        environment = {entry["name"]: entry["value"] for entry in container["env"]}
        self.assertEqual(environment, {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "OMP_NUM_THREADS": "4"})

    def test_runs_what_the_indexed_job_does_in_a_volume_of_its_own(self):
        indexed = {document["kind"]: document for document in read_yaml(read("kubernetes/indexed_job.yaml"))}
        (other,) = indexed["Job"]["spec"]["template"]["spec"]["containers"]
        pod = self.replicas["Master"]["template"]["spec"]
        (container,), (volume,) = pod["containers"], pod["volumes"]
        for same in ("image", "command", "resources", "volumeMounts"):
            self.assertEqual(container[same], other[same])
        claim = self.documents["PersistentVolumeClaim"]
        self.assertEqual(volume["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"])
        self.assertEqual(claim["spec"], indexed["PersistentVolumeClaim"]["spec"])
        self.assertNotEqual(claim["metadata"], indexed["PersistentVolumeClaim"]["metadata"])


class Containerfile(unittest.TestCase):
    def setUp(self):
        self.instructions = read_containerfile(read("Containerfile"))

    def test_copies_what_exists(self):
        stages = {rest.split(" AS ")[1] for instruction, rest in self.instructions if instruction == "FROM" and " AS " in rest}
        copied = []
        for instruction, rest in self.instructions:
            if instruction != "COPY":
                continue
            *options, target = rest.split()
            if options[0].startswith("--from="):
                self.assertIn(options[0].partition("=")[2], stages)
                continue
            copied.append(target)
            for source in options:
                self.assertTrue((pages.ROOT / source).exists(), source)
        self.assertIn(json.loads(dict(self.instructions)["ENTRYPOINT"])[1], copied)

    def test_runs_commands_that_a_shell_can_read(self):
        for instruction, rest in self.instructions:
            if instruction == "RUN":
                subprocess.run(["sh", "-n", "-c", rest], check=True)
                for path in re.findall(r"\bscripts/[\w.]+", rest):
                    self.assertTrue((pages.ROOT / path).exists(), path)

    def test_has_the_pytorch_that_is_tested(self):
        (tested,) = re.findall(r"^torch==(.+)$", (pages.ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual(set(re.findall(r"torch==([\d.]+)", read("Containerfile"))), {tested})


class Slurm(unittest.TestCase):
    def test_script_can_be_read(self):
        subprocess.run(["bash", "-n", FOLDER / "train.sbatch"], check=True)
        subprocess.run(["bash", "-n", pages.ROOT / "bench" / "slurm" / "cluster"], check=True)
        self.assertIn(f"-eq {STOPPED} ", read("train.sbatch"))

    def test_names_what_exists(self):
        script = read("train.sbatch")
        self.assertTrue((FOLDER / re.search(r"\$\{TRAIN:-([\w.]+)\}", script)[1]).exists())
        used = set(re.findall(r"(--\w+)", "\n".join(line for line in script.splitlines() if line.startswith("srun "))))
        self.assertLessEqual(used, options_of("train.py"))


class Page(unittest.TestCase):
    def test_commands_name_files_and_options_that_exist(self):
        found = 0
        for block in pages.read_blocks(pages.ROOT / "docs" / "schedulers.md"):
            for path in re.findall(r"(?<![\w/])(?:examples|bench|tests)/[\w./]*\w", block.text):
                found += 1
                self.assertTrue((pages.ROOT / path).exists(), f"{block.place}: {path}")
            for program in ("train.py", "ray_train.py"):
                for line in block.text.splitlines():
                    arguments = re.search(rf"(?<!\w){program}(.*)", line)
                    used = set(re.findall(r"(?<=\s)--[\w-]+", arguments[1])) if arguments else set()
                    self.assertLessEqual(used, options_of(program), block.place)
        self.assertGreater(found, 0)


if __name__ == "__main__":
    unittest.main()
