"""A CUDA graph of a step that trains: DeAR refuses to be captured, and says so."""

import contextlib

import torch
from setting import Figures, NotHere, Setting
from training import Job, plain_step, sgd

REFUSAL = "a graph of the device is being captured"


def texts_of(error: BaseException | None) -> list[str]:
    """Of the error, and of those that came before it: the end of a capture that was broken off fails, too."""
    return [] if error is None else [str(error), *texts_of(error.__context__)]


def check(setting: Setting) -> Figures:
    if setting.device.name != "cuda":
        raise NotHere("Python captures graphs of CUDA alone; in C++ StreamOrder.ACapture* do on the stub device")
    if not hasattr(torch.Stream, "is_capturing"):
        raise NotHere(f"PyTorch {torch.__version__} does not tell on every device whether a graph is captured")
    job = Job(setting.device.name, sgd)
    for step in range(3):
        plain_step(job, step)
    setting.device.settle()
    try:
        # The thread of NCCL that watches its work may ask the device meanwhile.
        with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
            plain_step(job, 3)
    except Exception as error:
        texts = texts_of(error)
    else:
        raise AssertionError("a step was captured, and nothing refused it")
    with contextlib.suppress(Exception):
        job.model.close()
    ours = [text for text in texts if REFUSAL in text]
    assert ours, f"the error does not say that DeAR is not captured: {texts[0][:300]}"
    return {"refused": ours[0].splitlines()[0][:120]}
