// The findings of a run or of a log beside its timeline: the one that is chosen is marked there.
const { h } = Vue;
import { Picture } from "/board/timeline_scripts.js";
import { lines } from "/board/files/lines.js";
import { finding } from "/board/files/finding.js";

export default {
  props: { run: { type: String, default: "" }, csrf: { type: String, default: "" }, most_bytes: Number },
  data() {
    return { step: "", error: "", found: null, picture: null, chosen: -1, file: null, maps: "", slots: "" };
  },
  mounted() {
    this.page = crypto.randomUUID();
    this.watching = new MutationObserver(() => this.shown?.dress());
    this.watching.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    if (this.run) this.look(`/board/data/diagnose?run=${encodeURIComponent(this.run)}&page=${this.page}`);
  },
  beforeUnmount() {
    this.leave?.abort();
    this.watching.disconnect();
    this.shown?.remove();
  },
  methods: {
    async look(path, options = {}) {
      this.leave?.abort();
      const mine = (this.leave = new AbortController());
      Object.assign(this, { step: "starting…", error: "", found: null, chosen: -1 });
      this.unshow();
      try {
        for await (const said of lines(path, { ...options, signal: mine.signal })) {
          if (mine !== this.leave) return;
          if (said.step) this.step = said.step;
          if (said.diagnosis) this.found = said.diagnosis;
          if (said.picture) await this.show(said.picture);
        }
        if (mine === this.leave) this.step = "";
        if (mine === this.leave && this.found?.findings.length) this.choose(0);
      } catch (error) {
        if (mine === this.leave) Object.assign(this, { step: "", error: error.message });
      }
    },
    lookAtFile() {
      const file = this.$refs.file.files[0];
      if (!file) return this.fail("choose a file first");
      if (file.size > this.most_bytes) {
        return this.fail(`${file.name}: is over ${Math.floor(this.most_bytes / 2 ** 20)} MiB; \`penstock diagnose FILE\` takes more`);
      }
      const query = new URLSearchParams({ name: file.name, page: this.page });
      for (const map of this.maps.split(/[\s,]+/)) if (map) query.append("map", map);
      for (const slots of this.slots.split(/[\s,]+/)) if (slots) query.append("slots", slots);
      this.file = file.name;
      const headers = { "Content-Type": "application/octet-stream" };
      if (this.csrf) headers["X-Penstock-CSRF"] = this.csrf;
      return this.look(`/board/data/diagnose?${query}`, { method: "POST", body: file, headers });
    },
    fail(words) {
      this.leave?.abort();
      Object.assign(this, { step: "", error: words, found: null });
      this.unshow();
    },
    unshow() {
      this.shown?.remove();
      this.shown = null;
      this.picture = null;
    },
    async show(data) {
      this.picture = data;
      await this.$nextTick();
      const address = (task) => `/board/tasks/${encodeURIComponent(task)}`;
      const own = this.file === null;
      this.shown = new Picture(this.$refs.picture, data, {
        prefix: "evidence-",
        label: `Timeline of ${this.found.run}`,
        open: own ? (task) => location.assign(address(task)) : undefined,
        linkTo: own ? address : undefined,
        quiet: true,
      });
    },
    choose(place) {
      this.chosen = place;
      this.shown?.mark(this.found.findings[place].marks);
    },
    key(event, place) {
      const last = this.found.findings.length - 1;
      const to = { ArrowDown: Math.min(last, place + 1), ArrowUp: Math.max(0, place - 1), Home: 0, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.choose(to);
      this.$nextTick(() => this.$el.querySelectorAll(".finding-head")[to].focus());
    },
    told() {
      const found = this.found;
      const unwell = found.unwell ? `; ${found.unwell}` : "";
      return `${found.run}: ${found.tasks} task${found.tasks === 1 ? "" : "s"}, ${found.makespan}${unwell}`;
    },
  },
  render() {
    return h("div", { class: "diagnosis stack" }, [
      this.file !== null || !this.run ? null : h("p", { class: "soft" }, "Up and down go from finding to finding; what is chosen is marked on the timeline."),
      h("p", { class: "status", role: "status" }, this.step || (this.found ? this.told() : "")),
      this.error ? h("p", { class: "problem", role: "alert" }, this.error) : null,
      this.found ? beside(this) : null,
      foreign(this),
    ]);
  },
};

function beside(page) {
  const found = page.found;
  const list = found.findings.length
    ? h("ol", { class: "findings", "aria-label": "Findings, the greatest gain first" }, found.findings.map((one, place) => finding(page, one, place)))
    : well(page);
  return h("div", { class: "beside" }, [
    h("section", { class: "part", "aria-label": "Findings" }, [list, notes(found)]),
    page.picture ? h("section", { class: "part picture", "aria-label": "Timeline" }, [h("div", { ref: "picture" })]) : null,
  ]);
}

function well({ found }) {
  if (!found.has_run) return h("p", "Nothing has run yet, so there is nothing to be said.");
  return h("div", { class: "stack" }, [
    h("p", { class: "well" }, "Found nothing wrong with how it was run."),
    found.waited ? h("p", `Its tasks waited for ${found.waited}.`) : null,
    h("p", { class: "soft" }, "Looked for:"),
    h("dl", { class: "looked" }, found.looked_for.flatMap(({ name, meaning }) => [h("dt", name), h("dd", meaning)])),
  ]);
}

function notes(found) {
  return found.notes.length ? h("ul", { class: "notes", "aria-label": "Notes" }, found.notes.map((words) => h("li", words))) : null;
}

function foreign(page) {
  const text = (name, label, hint) => h("label", { class: "field" }, [
    h("span", label),
    h("input", { type: "text", value: page[name], placeholder: hint, spellcheck: "false", autocomplete: "off", onInput: (event) => (page[name] = event.target.value) }),
  ]);
  return h("details", { class: "part foreign", open: !page.run || undefined }, [
    h("summary", "Diagnose a log of another system"),
    h("p", { class: "soft" }, "CSV, JSONL or a JSON array with a row per attempt: when it started and when it ended. It is read in memory and not kept."),
    h("form", { class: "cluster end", onSubmit: (event) => { event.preventDefault(); page.lookAtFile(); } }, [
      h("label", { class: "field" }, [h("span", "Log"), h("input", { type: "file", ref: "file", accept: ".csv,.tsv,.jsonl,.ndjson,.json,.log,.txt" })]),
      text("maps", "Columns (FIELD=COLUMN)", "started=launch_ts"),
      text("slots", "Slots (HOST=N)", "gpu1=4"),
      h("button", { type: "submit", class: "button main" }, "Diagnose"),
    ]),
  ]);
}
