// The slots of a host: in each the task that is in it, with its time. Rows of many are drawn as small squares, of
// which one is a stop of the Tab key and the arrows reach the others; what is pointed at is told in words below.
const { h } = Vue;
import { shortMoment } from "/board/files/clock.js";
import { amount, lasted } from "/board/files/now_words.js";

const MOST_WORDY = 24; // slots in use
const MOST_PIPS = 24;
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };

function told(slot) {
  const [task, name, kind, lane, priority, attempt] = slot;
  const again = attempt > 1 ? `, attempt ${attempt}` : "";
  return `${kind} ${name ?? task.slice(-6)}: lane ${lane}, priority ${priority}${again}, task ${task}`;
}

// One that has yet to begin has its slot, and waits for what is to run it.
const time = (slot) => (slot[6] === null ? "waits for a worker" : lasted(slot[6]));

const address = (slot) => `/board/tasks/${encodeURIComponent(slot[0])}`;

function wordySlot(slot) {
  const [task, name, kind, , , attempt, , width] = slot;
  return h("a", { class: "slot busy", href: address(slot), title: told(slot), "data-task": task }, [
    h("span", { class: "slot-kind" }, [
      kind,
      attempt > 1 ? h("span", { class: "slot-mark" }, ` ×${attempt}`) : null,
      width > 1 ? h("span", { class: "slot-mark" }, ` ${amount(width)} slots`) : null,
    ]),
    h("span", { class: "slot-name" }, name ?? task.slice(-6)),
    h("time", { class: "slot-time" }, time(slot)),
  ]);
}

// What stands in slots that no task has, one word each: those kept for lanes last.
function wordsOfFree(host) {
  const free = Math.max(0, Math.round(host.slots - host.used));
  if (host.state !== "up") return Array(free).fill(host.state);
  const kept = Object.entries(host.kept).flatMap(([lane, slots]) => Array(Math.round(slots)).fill(`kept for ${lane}`));
  return [...Array(Math.max(0, free - kept.length)).fill("free"), ...kept].slice(0, free);
}

// Those at the end of the row, one box for all that are alike: an idle host of many slots is not a wall of boxes.
function freeBoxes(words) {
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return [...counts].map(([word, count]) =>
    h("li", { key: word }, h("span", { class: "slot free", "data-free": count }, [
      h("span", count > 1 ? `${count} ${word}` : word),
      count > 1 ? h("span", { class: "pips", "aria-hidden": "true" }, Array.from({ length: Math.min(count, MOST_PIPS) }, () => h("i"))) : null,
    ])),
  );
}

export const HostSlots = {
  props: { name: String, host: Object, slots: Object, dense: Boolean },
  data: () => ({ stop: null, pointed: null }), // places: where Tab comes to, and what is told below
  computed: {
    busy() {
      return Object.entries(this.slots ?? {}).map(([place, slot]) => [Number(place), slot]).sort(([a], [b]) => a - b);
    },
    small() {
      return this.dense || this.busy.length > MOST_WORDY;
    },
    // The task that had it may have ended: then the next one has it.
    tabStop() {
      const places = this.busy.map(([place]) => place);
      return places.find((place) => place >= (this.stop ?? 0)) ?? places.at(-1);
    },
  },
  beforeUpdate() {
    this.hadFocus = this.$el.contains(document.activeElement);
  },
  updated() {
    if (this.hadFocus && !this.$el.contains(document.activeElement)) this.focusStop();
  },
  methods: {
    focusStop() {
      this.$el.querySelector('a[tabindex="0"]')?.focus();
    },
    pointAt(place) {
      this.pointed = place;
    },
    step(event) {
      const by = STEPS[event.key];
      if (!this.small || by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      const places = this.busy.map(([place]) => place);
      const wanted = places.indexOf(this.tabStop) + by;
      this.stop = places[Math.max(0, Math.min(places.length - 1, wanted))];
      this.$nextTick(() => this.focusStop());
    },
    smallSlot(place, slot) {
      const words = `${told(slot)}, ${slot[6] === null ? time(slot) : `since ${shortMoment(slot[6])}`}`;
      const focus = () => {
        this.stop = place;
        this.pointAt(place);
      };
      return h("a", { class: "slot busy", href: address(slot), "aria-label": words, tabindex: place === this.tabStop ? "0" : "-1",
        "data-task": slot[0], onFocus: focus, onBlur: () => this.pointAt(null), onMouseenter: () => this.pointAt(place), onMouseleave: () => this.pointAt(null) });
    },
    cells() {
      const free = wordsOfFree(this.host);
      const cells = [];
      let next = 0;
      for (const [place, slot] of this.busy) {
        for (; next < place && free.length; next++) {
          const word = free.shift();
          cells.push(h("li", { key: next, "aria-hidden": "true" }, h("span", { class: "slot free gap", "data-free": 1 }, this.small ? "" : word)));
        }
        cells.push(h("li", { key: place }, this.small ? this.smallSlot(place, slot) : wordySlot(slot)));
        next = place + 1;
      }
      return [...cells, ...freeBoxes(free)];
    },
    pointedLine() {
      const slot = this.slots?.[this.pointed];
      return h("p", { class: "slot-told", "aria-hidden": "true" }, slot ? `${told(slot)} · ${time(slot)}` : "");
    },
  },
  render() {
    const { small } = this;
    return h("div", [
      h("ul", { class: ["slots", { small }], "aria-label": `Tasks on ${this.name}`, onKeydown: this.step }, this.cells()),
      small ? this.pointedLine() : null,
    ]);
  },
};
