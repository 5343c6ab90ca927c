"""The release of PyTorch that the extension module needs: the one that it was compiled with."""


def check(found: str, compiled_with: str) -> None:
    """Raises ImportError where `found`, torch.__version__, is of another release than `compiled_with` ("2.13").

    PyTorch keeps the binary interface of its C++ side within a release only.
    """
    if found.split(".")[:2] != compiled_with.split("."):
        raise ImportError(
            f"dear was compiled with PyTorch {compiled_with}, and this is PyTorch {found}: run `pip install .` in the "
            f"sources of DeAR with the PyTorch that is here, or `pip install torch=={compiled_with}.*`",
            name="dear",
        )
