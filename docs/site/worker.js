// A page that was opened from a file may start no worker. Then the worker of the search runs in a frame of the page, whose
// script speaks with the page by messages as a worker would.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.waiting = [];
      this.frame = frame;
      window.addEventListener("message", (event) => {
        if (event.source !== frame.contentWindow) return;
        const told = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(told);
        if (this.onmessage) this.onmessage(told);
      });
      const inside = frame.contentDocument;
      inside.open();
      inside.write(
        "<!doctype html><script>" +
          "var postMessage = (data) => parent.postMessage(data, '*');" +
          "var importScripts = (...scripts) => scripts.map((address) => new Promise((done, failed) => {" +
          "  const script = document.createElement('script');" +
          "  script.src = address; script.onload = done; script.onerror = failed; document.body.appendChild(script);" +
          "})).reduce((before, after) => before.then(() => after), Promise.resolve());" +
          "</" + "script><body><script src='" + address + "'></" + "script>"
      );
      inside.close();
      frame.addEventListener("load", () => this.begin());
      if (inside.readyState === "complete") this.begin();
    }
    begin() {
      const waiting = this.waiting || [];
      this.waiting = null;
      for (const data of waiting) this.postMessage(data);
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.frame.contentWindow.postMessage(data, "*");
    }
    terminate() {
      this.frame.remove();
    }
  };
}
