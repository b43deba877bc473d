/* Opened from disk, a page may start no worker, and the site's search is one. Here it runs in a hidden frame instead. */
(() => {
  if (location.protocol !== "file:") return

  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      const place = document.body ? document.body : document.documentElement
      place.appendChild(frame)
      const inside = frame.contentWindow
      const load = (address) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script")
          script.src = new URL(address, document.baseURI).href
          script.onload = done
          script.onerror = failed
          inside.document.head.appendChild(script)
        })
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = async (...addresses) => {
        for (const address of addresses) await load(address) // in their order: later ones build on earlier ones
      }
      this.frame = frame
      this.loaded = load(url)
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
})()
