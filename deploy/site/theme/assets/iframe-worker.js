// Browsers start no worker for a page that was opened as a file. The search of the theme looks for this name then,
// and runs in a hidden frame instead. Pages from a web server keep their workers.
(() => {
  if (location.protocol !== "file:") return;

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      window.addEventListener("message", (event) => {
        if (event.source !== this.frame.contentWindow) return;
        const message = new MessageEvent("message", { data: event.data });
        if (this.onmessage) this.onmessage(message);
        this.dispatchEvent(message);
      });
      const inner = this.frame.contentDocument;
      this.loaded = new Promise((resolve) => {
        this.frame.contentWindow.workerLoaded = resolve;
      });
      inner.open();
      inner.write(
        "<script>" +
          "postMessage = data => parent.postMessage(data, '*');" +
          "importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {" +
          "const script = document.createElement('script'); script.src = url;" +
          "script.onload = done; script.onerror = failed; document.body.append(script); })), Promise.resolve());" +
          "</" + "script><body><script src='" + new URL(url, location.href) + "' onload='workerLoaded()'></" + "script>"
      );
      inner.close();
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  }

  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
})();
