// A page that was opened from a file may start no worker. There the worker of the search runs in a frame of the page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      // The script in the frame finds these at its frame.
      this.frame.deliver = (data) => setTimeout(() => this.receive(data));
      this.frame.began = () => this.begin();
      document.body.appendChild(this.frame);
      const inside = this.frame.contentDocument;
      inside.open();
      inside.write(`<!doctype html><body><script>
        var postMessage = (data) => frameElement.deliver(data);
        var importScripts = (...addresses) => addresses.reduce((before, address) => before.then(() => new Promise((done, failed) => {
          const script = document.createElement("script");
          script.src = address;
          script.onload = done;
          script.onerror = failed;
          document.body.appendChild(script);
        })), Promise.resolve());
      <\/script><script src="${address}" onload="frameElement.began()"><\/script>`);
      inside.close();
    }
    begin() {
      const waiting = this.waiting;
      this.waiting = null;
      for (const data of waiting) this.postMessage(data);
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
    receive(data) {
      const told = new MessageEvent("message", { data });
      this.dispatchEvent(told);
      if (this.onmessage) this.onmessage(told);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
