// Hosts as rows: what each is, how it stands and what may be done with it, beside its slots.
const { h } = Vue;
import { HostSlots } from "/board/files/now_slots.js";
import { actButton, amount, badge, meter, usd, whole } from "/board/files/now_words.js";

export const MOST_WORDY_ALL = 400; // slots of all hosts

export const HostRow = {
  props: { name: String, host: Object, slots: Object, dense: Boolean, live: Boolean, mayAct: Boolean },
  emits: ["act"],
  methods: {
    facts() {
      const { host } = this;
      const lines = [h("span", { class: "num" }, `${amount(host.used)} of ${host.slots} slots`)];
      if (host.auto) lines.push(h("span", { title: "It finds by itself how many at once are best" }, `⇅ tunes itself, ${host.auto[0]} to ${host.auto[1]}`));
      if (host.fallback) lines.push(h("span", "fallback"));
      if (host.queued) lines.push(h("span", { title: "Tasks and calls in the queue that could run here, each of them also on other hosts that fit it" }, `${whole(host.queued)} waiting could run here`));
      if (host.usd !== undefined) lines.push(h("span", `${usd(host.usd)}${host.budget == null ? "" : ` of ${usd(host.budget)}`} today`));
      return h("p", { class: "host-facts soft" }, lines);
    },
    units() {
      return Object.entries(this.host.units).map(([unit, [used, most]]) =>
        h("p", { class: "host-unit soft", key: unit }, [
          `${unit} `,
          meter(`${unit} of ${this.name} in use`, used, most),
          h("span", { class: "num" }, ` ${amount(used)}/${amount(most)}`),
        ]),
      );
    },
    actions() {
      const { host, name, live } = this;
      const act = (value) => () => this.$emit("act", { scope: "host", name, ...value });
      const paused = host.state === "paused";
      const pause = actButton(paused ? "▶ Resume" : "‖ Pause", `${paused ? "Resume" : "Pause"} host ${name}`, act({ do: paused ? "resume" : "pause" }), { disabled: !live });
      if (host.auto) return h("div", { class: "host-actions" }, [pause]);
      const set = (slots, sign, word) =>
        actButton(sign, `${word} slot for ${name}: ${slots}`, act({ do: "slots", slots }), { disabled: !live || slots < 1 });
      return h("div", { class: "host-actions" }, [pause, set(host.slots - 1, "−", "One less"), set(host.slots + 1, "+", "One more")]);
    },
  },
  render() {
    const { host, name } = this;
    return h("li", { class: ["host", host.state], "data-host": name }, [
      h("div", { class: "host-head" }, [
        h("div", { class: "host-title" }, [
          h("a", { href: `/board/queue?host=${encodeURIComponent(name)}`, class: "host-name" }, name),
          badge(host.needs_fix ? "down" : host.state, host.needs_fix ? "It stays down until somebody fixes it" : undefined),
          this.mayAct ? this.actions() : null,
        ]),
        host.detail ? h("p", { class: ["host-detail", host.state === "up" ? "soft" : "told"] }, host.detail) : null,
        this.facts(),
        h("p", { class: "host-takes soft" }, host.takes),
        ...this.units(),
      ]),
      h(HostSlots, { name, host, slots: this.slots, dense: this.dense }),
    ]);
  },
};
