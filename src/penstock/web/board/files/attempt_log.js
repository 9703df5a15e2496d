// What an attempt has said so far, and what it says while it runs. The end is kept in sight until the reader scrolls up.
const { h } = Vue;
const MOST_CHARACTERS = 1_000_000; // in the page; the file has all
const NEAR_PX = 24;
const AGAIN_MS = 1000;
const WORDS = {
  reading: "reading…",
  live: "live: it runs",
  over: "this is all",
  none: "it has written nothing yet",
  lost: "the server does not answer; trying again…",
};

export default {
  props: { url: String, label: String },
  data() {
    return { state: "reading", below: false, cut: false };
  },
  mounted() {
    this.follow();
  },
  beforeUnmount() {
    this.over.abort();
  },
  watch: {
    url() {
      this.over.abort();
      this.follow();
    },
  },
  methods: {
    async follow() {
      const over = (this.over = new AbortController());
      this.$refs.box.textContent = "";
      Object.assign(this, { state: "reading", below: false, cut: false });
      let after = -1; // the end of what there is
      while (!over.signal.aborted) {
        try {
          const reply = await fetch(`${this.url}&after=${after}`, { signal: over.signal });
          if (!reply.ok) throw new Error(`status ${reply.status}`);
          const told = await reply.json();
          this.put(told);
          after = told.next;
          if (!told.live && !told.more) return;
        } catch {
          if (over.signal.aborted) return;
          this.state = "lost";
          await new Promise((again) => setTimeout(again, AGAIN_MS));
        }
      }
    },
    put({ text, live, cut, size }) {
      const box = this.$refs.box;
      const follows = this.isAtEnd();
      if (text) box.append(text);
      while (box.textContent.length > MOST_CHARACTERS && box.childNodes.length > 1) {
        box.firstChild.remove();
        this.cut = true;
      }
      if (cut) this.cut = true;
      this.state = live ? (size ? "live" : "none") : "over";
      if (follows) this.toEnd();
      else if (text) this.below = true;
    },
    isAtEnd() {
      const box = this.$refs.box;
      return box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PX;
    },
    toEnd() {
      const box = this.$refs.box;
      box.scrollTop = box.scrollHeight;
      this.below = false;
    },
    scrolled() {
      if (this.below && this.isAtEnd()) this.below = false;
    },
  },
  render() {
    return h("div", { class: "attempt-log" }, [
      h("p", { class: "under" }, [
        h("span", { role: "status", class: ["soft", this.state] }, WORDS[this.state]),
        this.cut ? h("span", { class: "soft" }, "the beginning is left out here") : null,
        h("a", { class: "button quiet", href: `${this.url}&download=1`, download: "" }, "Download log"),
        this.below ? h("button", { type: "button", class: "button", onClick: this.toEnd }, "There is more below ↓") : null,
      ]),
      // What is in it is put there by hand: Vue would write a long log anew with each line.
      h("pre", { ref: "box", class: "code", tabindex: 0, role: "region", "aria-label": this.label, onScroll: this.scrolled }),
    ]);
  },
};
