// Whether what the page shows is live: a word in the header, said aloud when it changes. A page whose log-in has
// ended loads itself again, which leads to the log-in and back; one that is looked at keeps its log-in alive.
const { h } = Vue;
const TOLD = { begins: "Connecting", live: "Live", lost: "Connection lost; trying again" };

const RENEW_MS = 20 * 60 * 1000;

async function keepLogIn() {
  try {
    const answer = await fetch("/board/session");
    if (answer.status === 401) location.reload();
  } catch {
    // The server cannot be reached: whoever waits for it tries again.
  }
}

export default {
  data: () => ({ state: "begins" }),
  mounted() {
    // NiceGUI has its socket once the whole page is mounted.
    this.$nextTick(() => {
      const socket = window.socket;
      this.state = socket.connected ? "live" : "begins";
      socket.on("connect", () => (this.state = "live"));
      const lost = () => {
        this.state = "lost";
        keepLogIn();
      };
      socket.on("disconnect", lost);
      socket.io.on("reconnect_error", lost);
    });
    this.renewing = setInterval(keepLogIn, RENEW_MS);
  },
  unmounted() {
    clearInterval(this.renewing);
  },
  render() {
    return h("span", { class: ["connection", this.state], role: "status", "data-state": this.state }, [
      h("span", { class: "dot", "aria-hidden": "true" }),
      h("span", { class: "told" }, TOLD[this.state]),
    ]);
  },
};
