// Whether what the page shows is live: a word in the header, said aloud when it changes.
const { h } = Vue;

export default {
  data: () => ({ lost: false }),
  mounted() {
    // NiceGUI hides and shows an element of its own by this attribute.
    const popup = document.getElementById("popup");
    const look = () => (this.lost = popup.ariaHidden !== "true");
    this.watcher = new MutationObserver(look);
    this.watcher.observe(popup, { attributes: true, attributeFilter: ["aria-hidden"] });
    look();
  },
  unmounted() {
    this.watcher.disconnect();
  },
  render() {
    const told = this.lost ? "Connection lost; trying again" : "Live";
    return h("span", { class: ["connection", { lost: this.lost }], role: "status" }, [
      h("span", { class: "dot", "aria-hidden": "true" }),
      h("span", { class: "told" }, told),
    ]);
  },
};
