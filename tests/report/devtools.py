"""Chromium without a window, driven by its DevTools protocol over two pipes."""

import json
import os
import subprocess
import tempfile

# Resolves once what was asked to be drawn is drawn.
FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"

# Chromium reads commands from descriptor 3 and writes answers to 4.
_START = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'


class Browser:
    """One page. Events that come while an answer is waited for are kept in `events`."""

    def __init__(self, program):
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            "--no-first-run",
            "--disable-background-networking",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", _START, "bash", str(commands), str(answers), program, *options, f"--user-data-dir={self._folder.name}", "about:blank"],
            pass_fds=(commands, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self.events, self._number, self._read, self._session = [], 0, b"", None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # keys go to the page

    def _message(self):
        while b"\0" not in self._read:
            part = os.read(self._answers, 1 << 20)
            if not part:
                raise EOFError("chromium ended")
            self._read += part
        one, self._read = self._read.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path):
        self.events.clear()
        self.call("Page.navigate", url=f"file://{path}")
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def evaluate(self, text):
        answer = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        """light or dark"""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def press(self, key):
        """A key by its name of KeyboardEvent.key, down and up, to what has the focus."""
        text, code = {"Enter": ("\r", 13), "Tab": ("", 9)}.get(key, (key if len(key) == 1 else "", 0))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def faults(self):
        """What the page wrote to the console or threw."""
        return self.parameters("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")

    def requests(self):
        """What it asked for, by address."""
        return [one["request"]["url"] for one in self.parameters("Network.requestWillBeSent")]

    def parameters(self, *methods):
        return [event["params"] for event in self.events if event.get("method") in methods]

    def close(self):
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()
