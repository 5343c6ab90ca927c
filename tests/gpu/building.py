"""How the package is built for the check, and what a machine without the Debian packages needs for that.

`pack()` runs on a development machine: it gathers headers and one library into a folder that travels along. `build()`
uses that folder where it is there.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CARRIED = ROOT / "build/gpu_check/carried"
BUILD = ROOT / "build/gpu_check/release"

# Libraries of headers: the folder of the system, the package of CMake, and the target that it makes.
_HEADERS = (
    ("fmt", "fmt", "fmt::fmt"),
    ("nlohmann", "nlohmann_json", "nlohmann_json::nlohmann_json"),
    ("CLI", "CLI11", "CLI11::CLI11"),
    ("eigen3/Eigen", "Eigen3", "Eigen3::Eigen"),
)
_CONFIG = """if(NOT TARGET {target})
  add_library({target} INTERFACE IMPORTED GLOBAL)
  set_target_properties({target} PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${{CMAKE_CURRENT_LIST_DIR}}/../../../include;${{CMAKE_CURRENT_LIST_DIR}}/../../../include/eigen3"
    INTERFACE_COMPILE_DEFINITIONS "{definitions}")
endif()
"""
_VERSION = """set(PACKAGE_VERSION "9999")
set(PACKAGE_VERSION_COMPATIBLE TRUE)
"""


class CannotBuild(Exception):
    """A sentence that says what is missing, and what to do."""


def _first(*candidates: Path) -> Path:
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise CannotBuild(f"there is no {candidates[0]} to carry: run scripts/setup, which installs what a build needs")


def pack() -> str:
    """Fills CARRIED, and returns a sentence that says what it holds."""
    system = Path("/usr/include")
    libraries = next(Path("/usr/lib").glob("*-linux-gnu"), Path("/usr/lib"))
    shutil.rmtree(CARRIED, ignore_errors=True)
    for folder, package, target in _HEADERS:
        shutil.copytree(_first(system / folder), CARRIED / "include" / folder)
        config = CARRIED / "share/cmake" / package
        config.mkdir(parents=True)
        definitions = "FMT_HEADER_ONLY" if package == "fmt" else ""
        (config / f"{package}Config.cmake").write_text(_CONFIG.format(target=target, definitions=definitions))
        (config / f"{package}ConfigVersion.cmake").write_text(_VERSION)
    for place in (system, system / libraries.name):
        if (place / "openssl").is_dir():
            shutil.copytree(place / "openssl", CARRIED / "include/openssl", dirs_exist_ok=True)
    _first(CARRIED / "include/openssl/evp.h")
    (CARRIED / "lib").mkdir()
    shutil.copy(_first(libraries / "libcrypto.a"), CARRIED / "lib/libcrypto.a")
    (CARRIED / "commit").write_text(commit())
    size = sum(file.stat().st_size for file in CARRIED.rglob("*") if file.is_file())
    return (
        f"{CARRIED.relative_to(ROOT)} holds {size / 1e6:.0f} MB: fmt, nlohmann-json, CLI11, Eigen, OpenSSL's libcrypto"
    )


def commit() -> str:
    """Of the sources; a copy without their history has what pack() noted."""
    told = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    noted = CARRIED / "commit"
    return told.stdout.strip() or (noted.read_text() if noted.exists() else "unknown")


def flags(python: str = sys.executable, carried: Path = CARRIED) -> list[str]:
    """What CMake is told: the package alone, in little time, with what was carried along."""
    told = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CXX_FLAGS_RELEASE": "-O2 -DNDEBUG",
        "DEAR_TESTS": "OFF",
        "DEAR_BENCH": "OFF",
        "DEAR_PYTHON": python,
        # What this compiler warns of, and those of the tests do not, does not end the build.
        "CMAKE_CXX_COMPILE_OBJECT": "<CMAKE_CXX_COMPILER> <DEFINES> <INCLUDES> <FLAGS> -Wno-error -o <OBJECT> -c <SOURCE>",
    }
    if carried.is_dir():
        told["CMAKE_PREFIX_PATH"] = str(carried)
        told["OPENSSL_INCLUDE_DIR"] = str(carried / "include")
        told["OPENSSL_CRYPTO_LIBRARY"] = str(carried / "lib/libcrypto.a")
    return [f"-D{name}={value}" for name, value in told.items()]


def build(device: str, log: Path, seconds: float) -> tuple[Path, float]:
    """The folder of the build, and the seconds that it took. CannotBuild with the end of the log."""
    begin = time.monotonic()
    if device == "stub":
        folder = ROOT / "build/release"
        commands = [[str(ROOT / "scripts/build"), "release", "dear_python", "dear_stub_device_python"]]
    else:
        folder = BUILD
        commands = [
            ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *flags()],
            ["cmake", "--build", str(folder), "--target", "dear_python", "--parallel", str(os.cpu_count())],
        ]
    with log.open("w") as output:
        for command in commands:
            left = begin + seconds - time.monotonic()
            try:
                process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            except FileNotFoundError:
                raise CannotBuild(f"there is no {command[0]} here: install it (`pip install cmake ninja`)") from None
            try:
                status = process.wait(left)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it has started
                process.wait()
                raise CannotBuild(
                    f"the build took longer than {seconds:.0f} s: see {log}, or raise --build-seconds"
                ) from None
            if status != 0:
                raise CannotBuild(f"`{' '.join(command[:2])}` failed: {_errors_of(log)}{_remedy(device)}")
    return folder, time.monotonic() - begin


def _errors_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if re.search(r"\berror:|CMake Error|FAILED:|Could not find", line)]
    return "; ".join(line.strip()[:200] for line in (errors or lines[-6:])[:6]) + f"; all of it: {log}"


def _remedy(device: str) -> str:
    if device == "stub" or CARRIED.is_dir():
        return ""
    return "; where headers are missing, take along what `scripts/gpu_check --pack` gathers where DeAR builds"
