// Browsers start no workers for pages opened from a disk, and the search is a worker.
// Under file:, an invisible frame takes a worker's place, so that the search works there, too.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc =
        "<!doctype html><script>postMessage = (data) => parent.postMessage(data, '*');" +
        "importScripts = (...urls) => Promise.all(urls.map((url) => new Promise((resolve) => {" +
        "const script = document.createElement('script'); script.src = url; script.onload = resolve;" +
        `document.head.append(script); })));<\/script><script src="${url}"><\/script>`;
      this.loaded = new Promise((resolve) => this.frame.addEventListener("load", resolve));
      window.addEventListener("message", (event) => {
        if (event.source !== this.frame.contentWindow) return;
        this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
      const attach = () => document.body.append(this.frame);
      if (document.body) attach();
      else document.addEventListener("DOMContentLoaded", attach);
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.postMessage(data, "*"));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
