// A point in time in the reader's zone: short to read, exact on hover.
const { h } = Vue;

export default {
  props: { at: Number },
  render() {
    const when = new Date(this.at * 1000);
    return h("time", { datetime: when.toISOString(), title: when.toString() }, when.toLocaleTimeString());
  },
};
