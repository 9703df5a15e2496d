// The Now page: what runs where, what waits and for what, drawn from the event stream as it changes.
const { h } = Vue;
import { exactMoment, shortMoment } from "/board/files/clock.js";
import { byPriority, byReason, throughput, waitsOfHour } from "/board/files/now_charts.js";
import { followPlant } from "/board/files/now_feed.js";
import { HostRow, MOST_WORDY_ALL } from "/board/files/now_hosts.js";
import { gatesList, lanesTable } from "/board/files/now_lanes.js";
import { actButton, whole } from "/board/files/now_words.js";

const SPOKEN_S = 30; // between two summaries for screen readers

function part(title, ...content) {
  const id = `now-${title.toLowerCase().replaceAll(" ", "-")}`;
  return h("section", { class: "part", "aria-labelledby": id }, [h("div", { class: "part-head" }, h("h2", { id }, title)), ...content]);
}

function figure(label, value, look = "", href = null) {
  const shown = h("span", { class: "figure-value" }, whole(value));
  return h(href ? "a" : "div", { class: ["figure", look], href, "data-figure": label.toLowerCase() }, [h("span", { class: "figure-label" }, label), shown]);
}

function named(process) {
  const where = process.url ? ` at ${process.url}` : "";
  return `${process.command}, process ${process.pid} on ${process.machine}${where}`;
}

export default {
  props: { mayAct: Boolean, live: String },
  emits: ["act"],
  data: () => ({ summary: "" }),
  created() {
    this.feed = followPlant(this.live);
    this.plant = this.feed.plant;
  },
  mounted() {
    this.speaking = setInterval(() => this.speak(), SPOKEN_S * 1000);
  },
  unmounted() {
    clearInterval(this.speaking);
    this.feed.close();
  },
  methods: {
    act(value) {
      this.$emit("act", value);
    },
    speak() {
      if (this.plant.known) this.summary = this.inWords();
    },
    inWords() {
      const { totals, hosts, gates } = this.plant;
      const states = Object.values(hosts).map((host) => host.state);
      const closed = Object.entries(gates).filter(([, gate]) => !gate.open).map(([name]) => name);
      const told = [`${whole(totals.running)} running`, `${whole(totals.queued)} queued`, `${states.filter((state) => state === "up").length} of ${states.length} hosts up`];
      if (closed.length) told.push(`closed gates: ${closed.join(", ")}`);
      return `${told.join(", ")}.`;
    },
    banners() {
      const { who, live } = this.plant;
      const told = [];
      if (who.trouble) told.push(["bad", "The store cannot be read", who.trouble]);
      if (!who.dispatcher && who.standbys?.length) told.push(["waiting", "Nobody dispatches at the moment", "One that stands by takes over."]);
      else if (!who.dispatcher) told.push(["bad", "Nobody dispatches", "Nothing starts until `penstock serve` or `penstock work` runs on this store."]);
      else if (who.dispatcher.stopping_since) told.push(["waiting", "The dispatcher is stopping", `Since ${shortMoment(who.dispatcher.stopping_since)}. What runs goes on; nothing more starts until the next one leads.`]);
      else if (who.answers_only) told.push(["waiting", "The dispatcher only answers requests", "It starts nothing."]);
      else if (who.dispatcher.only_run) told.push(["waiting", "The dispatcher works on one run", `Only ${who.dispatcher.only_run}: all else waits until it has ended.`]);
      else if (who.silent) told.push(["bad", "The dispatcher has written nothing for a while", "Its store may be full or locked: `/health` says more."]);
      if (who.config) told.push(["waiting", "The config differs", `${who.config[0].toUpperCase()}${who.config.slice(1)}.`]);
      if (who.interrupted) told.push(["waiting", `${whole(who.interrupted)} tasks were running when the last dispatcher was lost`, "The next one runs them again, or blocks them."]);
      if (who.paused) told.push(["waiting", "Everything is paused", `${who.paused_since ? `Since ${shortMoment(who.paused_since)}. ` : ""}What runs goes on; nothing more starts.`]);
      if (!live) told.push(["bad", "Not live", "The connection to the server is lost; trying again."]);
      return h("div", { class: "banners", role: "status" }, told.map(([look, title, more]) =>
        h("p", { key: title, class: ["banner", look] }, [h("strong", title), ` ${more}`])));
    },
    head() {
      const { totals, who, live } = this.plant;
      const by = who.dispatcher;
      const all = who.paused ? "resume" : "pause";
      return h("div", { class: "now-head" }, [
        h("div", { class: "figures" }, [
          figure("Running", totals.running, "", "/board/queue?state=running"),
          figure("Queued", totals.queued, "", "/board/queue?state=queued"),
          figure("Done", totals.done, "", "/board/queue?state=done"),
          figure("Failed", totals.failed, totals.failed ? "bad" : "", "/board/queue?state=failed"),
          ...["blocked", "cancelled"].filter((state) => totals[state]).map((state) =>
            figure(state[0].toUpperCase() + state.slice(1), totals[state], "", `/board/queue?state=${state}`)),
        ]),
        h("div", { class: "cluster" }, [
          h("ul", { class: "crew soft" }, [
            by ? h("li", { key: "leads", title: exactMoment(by.since) }, `Dispatched by ${named(by)}, since ${shortMoment(by.since)}${by.stopping_since ? ", stopping" : ""}`) : null,
            ...(who.standbys ?? []).map((one) => h("li", { key: `${one.machine} ${one.pid}`, title: exactMoment(one.since) },
              `${one.here ? "This server stands by" : "Standing by"}: ${named(one)}`)),
          ]),
          this.mayAct ? actButton(who.paused ? "▶ Resume everything" : "‖ Pause everything", who.paused ? "Resume everything" : "Pause everything", () => this.act({ do: all, scope: "all", name: "" }), { kind: "plain", disabled: !live }) : null,
        ]),
      ]);
    },
    hosts() {
      const { hosts, slots, live } = this.plant;
      const names = Object.keys(hosts);
      if (!names.length) {
        return part("Hosts", h("div", { class: "empty" }, [
          h("p", { class: "empty-title" }, "No hosts yet"),
          h("p", "A host runs tasks. This finds model servers on this machine and writes a config:"),
          h("p", h("code", { class: "command" }, "penstock init")),
        ]));
      }
      const dense = names.reduce((sum, name) => sum + hosts[name].slots, 0) > MOST_WORDY_ALL;
      const rows = names.map((name) =>
        h(HostRow, { key: name, name, host: hosts[name], slots: slots[name], dense, live, mayAct: this.mayAct, onAct: this.act }));
      return part("Hosts", h("ul", { class: ["hosts", { dense }] }, rows));
    },
  },
  render() {
    const { plant } = this;
    if (!plant.known) return h("p", { class: "soft", role: "status" }, plant.live ? "Looking at the queue…" : "Connecting…");
    const untouched = Object.values(plant.totals).every((tasks) => !tasks) && Object.keys(plant.hosts).length > 0;
    return h("div", { class: "now" }, [
      h("p", { class: "unseen", role: "status", "aria-live": "polite" }, this.summary),
      this.banners(),
      this.head(),
      untouched ? h("div", { class: "empty" }, [
        h("p", { class: "empty-title" }, "No task yet"),
        h("p", "Submit one, from here or any program:"),
        h("p", h("code", { class: "command" }, `penstock submit KIND '{"prompt": "…"}'`)),
      ]) : null,
      this.hosts(),
      h("div", { class: "columns" }, [
        h("div", [
          part("Lanes", lanesTable(plant, this.mayAct, this.act)),
          part("Queue by priority", byPriority(plant.priorities)),
          part("Ended in the last hour", ...throughput(plant.ended, plant.hour)),
        ]),
        h("div", [
          Object.keys(plant.gates).length ? part("Gates", gatesList(plant.gates)) : null,
          part("The queue waits for", byReason(plant.reasons)),
          part("Waits of the last hour", waitsOfHour(plant.waits, plant.hour)),
        ]),
      ]),
    ]);
  },
};
