// What an agent's containers write, live: the latest lines, drawn once a frame, at the end unless scrolled up.
//
// Which containers there are is told from outside: when there are others, their output is followed from anew.
const { h } = Vue;

const MOST_LINES = 2000;
const AGAIN_MS = 5000;

export default {
  props: { agent: String, instances: Array },
  data: () => ({ drawn: 0, follows: true, lost: false }),
  created() { this.lines = []; },
  mounted() { this.open(); },
  watch: {
    instances(now, before) {
      if (now.join() !== before.join()) this.open();
    },
  },
  beforeUnmount() { this.close(); },
  updated() {
    const box = this.$refs.box;
    if (box && this.follows) box.scrollTop = box.scrollHeight;
  },
  methods: {
    open() {
      this.close();
      if (!this.instances.length) return; // what those before wrote stays in sight
      this.lines = [];
      const source = new EventSource(`/api/agents/${encodeURIComponent(this.agent)}/logs/stream?tail=500`);
      source.addEventListener("line", (message) => this.hear(JSON.parse(message.data)));
      source.onopen = () => { this.lost = false; };
      source.onerror = () => { // it has ended with its containers, or the server is away
        this.close();
        this.lost = true;
        this.retry = setTimeout(() => this.open(), AGAIN_MS);
      };
      this.source = source;
    },
    close() {
      clearTimeout(this.retry);
      cancelAnimationFrame(this.frame);
      this.frame = 0;
      this.source?.close();
    },
    hear(line) {
      this.lines.push(line);
      if (this.lines.length > MOST_LINES) this.lines.splice(0, this.lines.length - MOST_LINES);
      if (this.frame) return;
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.drawn += 1;
      });
    },
    told() {
      if (!this.instances.length) return this.lines.length ? "The containers that wrote this are gone." : "No container runs, so there is nothing to read.";
      if (this.lost) return "Nothing more comes at the moment; looking again soon.";
      return this.lines.length ? "" : "Nothing was written yet.";
    },
  },
  render() {
    void this.drawn;
    const several = new Set(this.lines.map((one) => one.instance)).size > 1;
    const text = this.lines.map((one) => (several ? `${one.instance}  ${one.line}` : one.line)).join("\n");
    const onScroll = (event) => {
      const box = event.target;
      this.follows = box.scrollHeight - box.scrollTop - box.clientHeight < 24;
    };
    const told = this.told();
    return h("div", { class: "stack" }, [
      told ? h("p", { class: "soft", role: "status" }, told) : null,
      this.lines.length ? h("pre", { ref: "box", class: "code", tabindex: 0, role: "group", "aria-label": `Log of ${this.agent}`, onScroll }, text) : null,
    ]);
  },
};
