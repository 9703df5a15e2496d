// A text that may be long: its beginning is here, the rest is fetched when it is asked for, or saved as a file.
const { h } = Vue;

function size(bytes) {
  if (bytes < 1000) return bytes === 1 ? "1 byte" : `${bytes} bytes`;
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

export default {
  props: {
    label: String,
    text: { type: String, default: "" }, // its beginning
    bytes: { type: Number, default: 0 }, // of all of it
    url: String,
    most: { type: Number, default: 0 }, // bytes that a page bears
    is_cut: Boolean,
  },
  data() {
    return { whole: null, state: "" };
  },
  watch: {
    text() {
      this.whole = null;
      this.state = "";
    },
  },
  methods: {
    async showAll() {
      this.state = "reading…";
      try {
        const reply = await fetch(this.url);
        if (!reply.ok) throw new Error(`status ${reply.status}`);
        this.whole = Vue.markRaw([await reply.text()]);
        this.state = "";
      } catch (error) {
        this.state = `it could not be read (${error.message}); try again`;
      }
    },
    rest() {
      if (!this.is_cut || this.whole) return null;
      if (this.bytes > this.most) return h("span", { class: "soft" }, `${size(this.bytes)} are too much for a page: download it`);
      return h("button", { type: "button", class: "button", onClick: this.showAll }, `Show all ${size(this.bytes)}`);
    },
  },
  render() {
    const shown = this.whole ? this.whole[0] : this.text;
    const dots = this.is_cut && !this.whole ? "\n…" : "";
    return h("div", { class: "long-text" }, [
      h("pre", { class: "code", tabindex: 0, role: "region", "aria-label": `${this.label} as text` }, shown + dots),
      h("p", { class: "under" }, [
        this.rest(),
        h("a", { class: "button quiet", href: `${this.url}?download=1`, download: "" }, `Download ${this.label.toLowerCase()}`),
        this.is_cut ? null : h("span", { class: "soft" }, size(this.bytes)),
        h("span", { role: "status", class: "soft" }, this.state),
      ]),
    ]);
  },
};
