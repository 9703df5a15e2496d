// What if: knobs of the plant on one side, what turning them would have brought on the other, and the curve of the knob
// that was turned last. An answer that is no longer wanted is left off.
const { h } = Vue;
import { asCommand, asToml } from "/board/files/command.js";
import { curve, stops } from "/board/files/curve.js";
import { knob } from "/board/files/knob.js";
import { lines } from "/board/files/lines.js";
import { results, tables } from "/board/files/results.js";

const PAUSE_MS = 120;

export default {
  props: { run: String },
  data() {
    return {
      step: "", error: "", knobs: [], values: {}, typical: false, first: null, answer: null, stale: true,
      turned: null, typing: null, points: {}, known: {}, drawing: null, curveError: "", hovered: null, copied: false, width: 680,
    };
  },
  mounted() {
    this.page = crypto.randomUUID();
    this.atEvent = null;
    this.sized = new ResizeObserver(() => this.measure()); // the curve is as wide as there is room, its letters as large as others
    this.sized.observe(this.$el);
    this.ask();
  },
  beforeUnmount() {
    clearTimeout(this.timer);
    this.asking?.abort();
    this.drawing?.abort();
    this.sized.disconnect();
  },
  computed: {
    changed() {
      return this.knobs.filter((one) => this.values[one.key] !== one.was);
    },
    knob() {
      return this.knobs.find((one) => one.key === this.turned) || null;
    },
    // A curve is that of its knob while all others stand as they do.
    curveName() {
      return this.turned && this.query((one) => one.key !== this.turned).toString();
    },
  },
  methods: {
    measure() {
      const room = this.$el.querySelector(".curve")?.clientWidth;
      if (room) this.width = Math.max(280, room - 32);
    },
    query(counts = () => true) {
      const query = new URLSearchParams({ run: this.run });
      if (this.atEvent !== null) query.set("at_event", this.atEvent);
      if (this.typical) query.set("typical", "1");
      for (const one of this.changed.filter(counts)) {
        if (this.values[one.key] === null) query.append("unset", one.key);
        else query.append("set", `${one.key}=${this.values[one.key]}`);
      }
      return query;
    },
    turn(one, value) {
      this.values[one.key] = value;
      this.turned = one.key;
      this.later();
    },
    later() {
      this.stale = true;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.ask(), PAUSE_MS);
    },
    reset() {
      for (const one of this.knobs) this.values[one.key] = one.was;
      this.later();
    },
    async ask() {
      this.asking?.abort();
      const mine = (this.asking = new AbortController());
      this.draw();
      try {
        for await (const said of lines(`/board/data/whatif?${this.query()}&page=${this.page}`, { signal: mine.signal })) {
          if (mine !== this.asking) return;
          this.hear(said);
        }
        if (mine === this.asking) Object.assign(this, { step: "", stale: false, error: "" });
      } catch (error) {
        if (mine === this.asking) Object.assign(this, { step: "", stale: true, error: error.message });
      }
    },
    hear(said) {
      if (said.step) this.step = said.step;
      if (said.knobs && !this.knobs.length) {
        this.knobs = said.knobs;
        for (const one of said.knobs) this.values[one.key] = one.was;
        this.atEvent = said.at_event;
      }
      if (said.first) this.first = said.first;
      if (said.answer) Object.assign(this, { answer: said.answer, first: null, error: "" });
    },
    // The curve goes on while its own knob is turned: only the place on it moves.
    async draw() {
      const name = this.curveName, one = this.knob;
      if (!one) return;
      this.$nextTick(() => this.measure());
      const known = this.points[name] || (this.points[name] = {});
      const at = this.values[one.key];
      const wanted = [...new Set([...stops(one, at), ...Object.keys(known).map(Number)])];
      const isThere = (value) => value in known || (this.drawn === name && this.drawing?.wanted.includes(value));
      if (wanted.every(isThere)) return;
      this.drawing?.abort();
      const mine = (this.drawing = Object.assign(new AbortController(), { wanted }));
      Object.assign(this, { drawn: name, curveError: "" });
      const query = `${name}&key=${encodeURIComponent(one.key)}&values=${wanted.join(",")}&page=${this.page}-curve`;
      try {
        for await (const said of lines(`/board/data/whatif/curve?${query}`, { signal: mine.signal })) {
          if (mine !== this.drawing) return;
          if (said.point) this.points[name][Number(said.point.value)] = said.point;
          if ("knee" in said) Object.assign(this.known, { [name]: { knee: said.knee === null ? null : Number(said.knee), notes: said.notes } });
        }
        if (mine === this.drawing) this.drawing = null;
      } catch (error) {
        if (mine === this.drawing) Object.assign(this, { curveError: error.message, drawing: null });
      }
    },
    async copy() {
      const text = `${asCommand(this)}\n`;
      try {
        await navigator.clipboard.writeText(text);
        this.copied = true;
      } catch {
        getSelection().selectAllChildren(this.$refs.command);
        this.copied = false;
      }
    },
  },
  render() {
    return h("div", { class: "whatif stack" }, [
      h("p", { class: "status", role: "status" }, this.step || told(this)),
      this.error ? h("p", { class: "problem", role: "alert" }, this.error) : null,
      this.knobs.length ? h("div", { class: "asking" }, [turning(this), h("div", { class: "answers stack" }, [results(this), curve(this), tables(this), asText(this)])]) : null,
    ]);
  },
};

function told(page) {
  if (!page.answer) return "";
  const { tasks, took, error, record } = page.answer;
  const wrong = error === null ? "" : `; replay error ${error}`;
  return `${page.run}: ${tasks} task${tasks === 1 ? "" : "s"}; ${record.over ? `the run took ${took}` : `the run is not over, ${took} so far`}${wrong}`;
}

function turning(page) {
  const groups = [...new Set(page.knobs.map((one) => one.group))];
  const of = (group) => page.knobs.filter((one) => one.group === group);
  return h("section", { class: "part knobs stack", "aria-label": "What to change" }, [
    h("h2", "Change"),
    ...groups.map((group) => h("fieldset", [h("legend", group), ...of(group).filter((one) => !one.folded).map((one) => knob(page, one)), more(page, of(group).filter((one) => one.folded))])),
    h("label", { class: "check" }, [
      h("input", { type: "checkbox", checked: page.typical, onChange: (event) => { page.typical = event.target.checked; page.later(); } }),
      h("span", "attempts that a stalled loop kept from ending take the usual time"),
    ]),
    h("button", { type: "button", class: "button", disabled: !page.changed.length, onClick: page.reset }, "As it was"),
  ]);
}

// What is seldom turned takes no room until somebody asks for it.
function more(page, folded) {
  if (!folded.length) return null;
  const changed = folded.filter((one) => page.values[one.key] !== one.was).length;
  const words = `Reserve on ${folded.length} ${folded.length === folded[0].hosts ? "" : "more "}host${folded.length === 1 ? "" : "s"}`;
  return h("details", { class: "more-knobs" }, [h("summary", changed ? `${words}, ${changed} changed` : words), ...folded.map((one) => knob(page, one))]);
}

function asText(page) {
  if (!page.changed.length && !page.typical) return null;
  return h("details", { class: "part" }, [
    h("summary", "Copy as command"),
    h("pre", { class: "code", tabindex: "0", role: "region", "aria-label": "The same as a command", ref: "command" }, asCommand(page)),
    h("p", [h("button", { type: "button", class: "button", onClick: page.copy }, "Copy"), h("span", { role: "status" }, page.copied ? " copied" : "")]),
    h("p", { class: "soft" }, "To keep it, in penstock.toml:"),
    h("pre", { class: "code", tabindex: "0", role: "region", "aria-label": "Lines for penstock.toml" }, asToml(page)),
  ]);
}
