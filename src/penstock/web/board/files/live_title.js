// The tab's title as it changes; shows nothing in the page.
export default {
  props: { text: String },
  watch: {
    text: {
      immediate: true,
      handler(text) {
        document.title = text;
      },
    },
  },
  render: () => null,
};
