// Whether what the page shows is live: a word in the header, said aloud when it changes.
const { h } = Vue;
const TOLD = { begins: "Connecting", live: "Live", lost: "Connection lost; trying again" };

export default {
  data: () => ({ state: "begins" }),
  mounted() {
    // NiceGUI has its socket once the whole page is mounted.
    this.$nextTick(() => {
      const socket = window.socket;
      this.state = socket.connected ? "live" : "begins";
      socket.on("connect", () => (this.state = "live"));
      socket.on("disconnect", () => (this.state = "lost"));
      socket.io.on("reconnect_error", () => (this.state = "lost"));
    });
  },
  render() {
    return h("span", { class: ["connection", this.state], role: "status", "data-state": this.state }, [
      h("span", { class: "dot", "aria-hidden": "true" }),
      h("span", { class: "told" }, TOLD[this.state]),
    ]);
  },
};
