// Tells the page's clock what time it is for the server, and shows nothing.
import { setClock } from "/board/files/clock.js";

export default {
  props: { at: Number },
  created() {
    setClock(this.at);
  },
  render: () => null,
};
