// Where the menu is wider than the window, the page that is shown is in sight in it. Shows nothing itself.
export default {
  mounted() {
    this.$nextTick(() => {
      const nav = document.querySelector("header nav");
      const entry = nav?.querySelector("[aria-current]");
      if (entry) nav.scrollLeft = entry.offsetLeft - (nav.clientWidth - entry.offsetWidth) / 2;
    });
  },
  render: () => null,
};
