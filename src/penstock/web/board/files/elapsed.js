// How long something has taken: it ticks until it has an end. The start stands on hover.
const { h } = Vue;
import { exactMoment, spoken, ticking } from "/board/files/clock.js";

export default {
  props: { since: Number, until: { type: Number, default: null } },
  render() {
    const told = this.until === null ? ticking(this.since) : spoken(this.until - this.since);
    return h("time", { class: "elapsed", title: `since ${exactMoment(this.since)}` }, told);
  },
};
