// Browsers start no workers for pages opened from a disk, and the search is a worker.
// Under file:, an invisible frame takes a worker's place, so that the search works there, too.
if (location.protocol === "file:") {
  const message = (data) => new MessageEvent("message", { data });

  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc =
        "<!doctype html><script>" +
        "postMessage = (data) => frameElement.dispatchEvent(new MessageEvent('message', { data }));" +
        "importScripts = (...urls) => Promise.all(urls.map((url) => new Promise((resolve) => {" +
        "const script = document.createElement('script'); script.src = url; script.onload = resolve;" +
        `document.head.append(script); })));<\/script><script src="${url}"><\/script>`;
      this.loaded = new Promise((resolve) => this.frame.addEventListener("load", resolve));
      this.frame.addEventListener("message", (event) => this.dispatchEvent(message(event.data)));
      document.body.append(this.frame);
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(message(data)));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
