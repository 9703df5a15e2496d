// How long something has taken: it ticks until it has an end. The start stands on hover.
const { h } = Vue;
import { exactMoment, now_s, spoken } from "/board/files/clock.js";

export default {
  props: { since: Number, until: { type: Number, default: null } },
  render() {
    const seconds = (this.until ?? Math.floor(now_s.value * 10) / 10) - this.since;
    const told = this.until === null && seconds < 10 ? `${Math.max(0, Math.floor(seconds))} s` : spoken(seconds);
    return h("time", { class: "elapsed", title: `since ${exactMoment(this.since)}` }, told);
  },
};
