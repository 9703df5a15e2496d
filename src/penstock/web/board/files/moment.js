// A point in time in the reader's zone: short to read, exact on hover.
const { h } = Vue;
import { exactMoment, shortMoment } from "/board/files/clock.js";

export default {
  props: { at: Number },
  render() {
    const machine = new Date(this.at * 1000).toISOString();
    return h("time", { datetime: machine, title: exactMoment(this.at) }, shortMoment(this.at));
  },
};
