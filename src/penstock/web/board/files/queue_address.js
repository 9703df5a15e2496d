// What the page is asked for, in its address: new questions are steps of the history, and going back asks again.
export default {
  props: { query: String },
  emits: ["went"],
  watch: {
    query(query) {
      if (query === window.location.search.slice(1)) return;
      window.history.pushState(null, "", window.location.pathname + (query ? `?${query}` : ""));
    },
  },
  mounted() {
    window.addEventListener("popstate", this.back);
  },
  unmounted() {
    window.removeEventListener("popstate", this.back);
  },
  methods: {
    back() {
      this.$emit("went", window.location.search.slice(1));
    },
  },
  render() {
    return null;
  },
};
