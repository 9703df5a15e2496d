// Hosts as rows of slots: in each the task that is in it, with its time; rows of many slots are drawn as small squares.
const { h } = Vue;
import { spoken } from "/board/files/clock.js";
import { actButton, amount, badge, lasted, meter, usd, whole } from "/board/files/now_words.js";

const MOST_WORDY = 24; // slots of a host
export const MOST_WORDY_ALL = 400; // slots of all hosts

function nameOf(slot) {
  const [task, name, kind] = slot;
  return `${kind} ${name ?? task.slice(-6)}`;
}

function told(slot) {
  const [task, , , lane, priority, attempt] = slot;
  const again = attempt > 1 ? `, attempt ${attempt}` : "";
  return `${nameOf(slot)}: lane ${lane}, priority ${priority}${again}, task ${task}`;
}

function wordySlot(place, slot) {
  const [task, name, kind, , , attempt, , width] = slot;
  const href = `/board/tasks/${encodeURIComponent(task)}`;
  return h("a", { key: place, class: "slot busy", href, title: told(slot), "data-task": task }, [
    h("span", { class: "slot-kind" }, [
      kind,
      attempt > 1 ? h("span", { class: "slot-mark" }, ` ×${attempt}`) : null,
      width > 1 ? h("span", { class: "slot-mark" }, ` ${amount(width)} slots`) : null,
    ]),
    h("span", { class: "slot-name" }, name ?? task.slice(-6)),
    h("time", { class: "slot-time" }, lasted(slot[6])),
  ]);
}

function smallSlot(place, slot) {
  const href = `/board/tasks/${encodeURIComponent(slot[0])}`;
  const title = `${told(slot)}, ${spoken(Math.max(0, Date.now() / 1000 - slot[6]))}`;
  return h("a", { key: place, class: "slot busy", href, title, "aria-label": title, tabindex: "-1", "data-task": slot[0] });
}

export const HostRow = {
  props: { name: String, host: Object, slots: Object, dense: Boolean, mayAct: Boolean },
  emits: ["act"],
  methods: {
    facts() {
      const { host, name } = this;
      const lines = [h("span", { class: "num" }, `${amount(host.used)} of ${host.slots} slots`)];
      if (host.auto) lines.push(h("span", { title: "It finds by itself how many at once are best" }, `⇅ tunes itself, ${host.auto[0]} to ${host.auto[1]}`));
      if (host.fallback) lines.push(h("span", "fallback"));
      if (host.queued) lines.push(h("a", { href: `/board/queue?state=queued&host=${encodeURIComponent(name)}`, title: "Tasks in the queue that could run here" }, `${whole(host.queued)} could come`));
      if (host.usd !== undefined) lines.push(h("span", `${usd(host.usd)}${host.budget == null ? "" : ` of ${usd(host.budget)}`} today`));
      return h("p", { class: "host-facts soft" }, lines);
    },
    units() {
      return Object.entries(this.host.units).map(([unit, [used, most]]) =>
        h("p", { class: "host-unit soft", key: unit }, [
          `${unit.replace("_", " ")} `,
          meter(`${unit} of ${this.name} in use`, used, most),
          h("span", { class: "num" }, ` ${amount(used)}/${amount(most)}`),
        ]),
      );
    },
    actions() {
      const { host, name } = this;
      const act = (value) => () => this.$emit("act", { scope: "host", name, ...value });
      const paused = host.state === "paused";
      const pause = actButton(paused ? "▶ Resume" : "‖ Pause", `${paused ? "Resume" : "Pause"} host ${name}`, act({ do: paused ? "resume" : "pause" }));
      if (host.auto) return h("div", { class: "host-actions" }, [pause]);
      const set = (slots, sign, word) => {
        const made = actButton(sign, `${word} slot for ${name}: ${slots}`, act({ do: "slots", slots }));
        made.props.disabled = slots < 1;
        return made;
      };
      return h("div", { class: "host-actions" }, [pause, set(host.slots - 1, "−", "One less"), set(host.slots + 1, "+", "One more")]);
    },
    row() {
      const busy = Object.entries(this.slots ?? {}).sort(([a], [b]) => a - b);
      const small = this.dense || this.host.slots > MOST_WORDY || busy.length > MOST_WORDY;
      const draw = small ? smallSlot : wordySlot;
      const taken = new Map(busy);
      let free = Math.max(0, Math.round(this.host.slots - this.host.used));
      const places = Math.max(busy.length + free, ...busy.map(([place]) => Number(place) + 1));
      const word = this.host.state === "up" ? "free" : this.host.state;
      const cells = [];
      for (let place = 0; place < places; place++) {
        const slot = taken.get(String(place));
        if (slot) cells.push(h("li", { key: place }, draw(place, slot)));
        else if (free-- > 0) cells.push(h("li", { key: place, "aria-hidden": "true" }, h("span", { class: "slot free" }, small ? "" : word)));
      }
      return h("ul", { class: ["slots", { small }], "aria-label": `Tasks on ${this.name}` }, cells);
    },
  },
  render() {
    const { host, name } = this;
    return h("li", { class: ["host", host.state], "data-host": name }, [
      h("div", { class: "host-head" }, [
        h("div", { class: "host-title" }, [
          h("a", { href: `/board/queue?host=${encodeURIComponent(name)}`, class: "host-name" }, name),
          badge(host.state),
          this.mayAct ? this.actions() : null,
        ]),
        host.detail ? h("p", { class: ["host-detail", host.state === "up" ? "soft" : "told"] }, host.detail) : null,
        this.facts(),
        ...this.units(),
      ]),
      this.row(),
    ]);
  },
};
