// A table from data: cells are text, or say what else they are. Sorting and selecting happen here.
const { h } = Vue;
import { exactMoment, now_s, shortMoment, spoken, ticking } from "/board/files/clock.js";

const SIGNS = { up: " ▲", down: " ▼" };

function shown(cell) {
  if (cell === null || cell === undefined || cell === "") return h("span", { class: "soft" }, "–");
  if (typeof cell !== "object") return String(cell);
  if (cell.is === "link") return h("a", { href: cell.href, title: cell.title }, cell.text);
  if (cell.is === "badge") return h("span", { class: ["badge", cell.look] }, [h("i", { "aria-hidden": "true" }, cell.sign), cell.text]);
  if (cell.is === "code") return h("code", { title: cell.title }, cell.text);
  if (cell.is === "soft") return h("span", { class: "soft", title: cell.title }, cell.text);
  if (cell.is === "seconds") return spoken(cell.seconds);
  if (cell.is === "moment") return h("time", { title: exactMoment(cell.at) }, shortMoment(cell.at));
  if (cell.is === "elapsed") {
    const told = cell.until === null ? ticking(cell.since, cell.plus) : spoken(cell.until - cell.since);
    return h("time", { class: "elapsed", title: `since ${exactMoment(cell.since)}` }, told);
  }
  return cell.text;
}

function weight(cell) {
  if (cell === null || typeof cell !== "object") return cell;
  if (cell.is === "moment") return cell.at;
  if (cell.is === "elapsed") return (cell.until ?? now_s.value) - cell.since + cell.plus;
  if (cell.is === "seconds") return cell.seconds;
  return cell.sort ?? cell.text;
}

function compared(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

export default {
  props: {
    caption: String,
    hide_caption: Boolean,
    columns: Array, // of { title, key, num, sortable, wide, unseen }
    rows: Array, // of { key, cells, name, look }
    sorted: { type: Array, default: null }, // [key of a column, whether it falls]
    sorts_here: { type: Boolean, default: true }, // or Python gives the rows in the order asked for
    selectable: Boolean,
    selected: { type: Array, default: () => [] },
    turn: { type: Number, default: 0 },
    tall: { type: Boolean, default: false },
  },
  emits: ["sort", "select"],
  data() {
    return { order: this.sorted, chosen: new Set(this.selected) };
  },
  watch: {
    turn() {
      this.order = this.sorted;
      this.chosen = new Set(this.selected);
    },
    rows(rows) {
      const there = new Set(rows.map((row) => row.key));
      const kept = [...this.chosen].filter((key) => there.has(key));
      if (kept.length !== this.chosen.size) this.choose(kept);
    },
  },
  methods: {
    sort(column) {
      const falls = this.order?.[0] === column.key && !this.order[1];
      this.order = [column.key, falls];
      this.$emit("sort", this.order);
    },
    choose(keys) {
      this.chosen = new Set(keys);
      this.$emit("select", [...this.chosen]);
    },
    toggle(key) {
      const keys = new Set(this.chosen);
      if (!keys.delete(key)) keys.add(key);
      this.choose(keys);
    },
    ordered() {
      const places = this.rows.map((row, place) => [row, place]);
      const at = this.sorts_here && this.order ? this.columns.findIndex((one) => one.key === this.order[0]) : -1;
      if (at < 0) return places;
      const way = this.order[1] ? -1 : 1;
      return places.sort(([a], [b]) => way * compared(weight(a.cells[at]), weight(b.cells[at])));
    },
    head(column) {
      const sorted = this.order?.[0] === column.key;
      const set = { scope: "col", class: { num: column.num, wide: column.wide } };
      if (!column.sortable) return h("th", set, column.unseen ? h("span", { class: "unseen" }, column.title) : column.title);
      set["aria-sort"] = sorted ? (this.order[1] ? "descending" : "ascending") : "none";
      const sign = sorted ? SIGNS[this.order[1] ? "down" : "up"] : "";
      return h("th", set, [
        h("button", { type: "button", onClick: () => this.sort(column) }, [column.title, h("span", { "aria-hidden": "true" }, sign)]),
      ]);
    },
    box(checked, label, onChange, indeterminate) {
      return h("input", { type: "checkbox", "aria-label": label, checked, indeterminate, onChange });
    },
    row([row, place]) {
      const cells = row.cells.map((cell, at) => {
        const column = this.columns[at];
        const inner = cell?.is === "slot" ? this.$slots[`r${place}c${at}`]?.() : shown(cell);
        return h(column.heads ? "th" : "td", { class: { num: column.num, wide: column.wide }, scope: column.heads ? "row" : undefined }, inner);
      });
      if (this.selectable) {
        const box = this.box(this.chosen.has(row.key), `Select ${row.name}`, () => this.toggle(row.key));
        cells.unshift(h("td", { class: "tick" }, [box]));
      }
      return h("tr", { key: row.key, class: [row.look, { chosen: this.chosen.has(row.key) }] }, cells);
    },
  },
  render() {
    const heads = this.columns.map(this.head);
    if (this.selectable) {
      const all = this.rows.length > 0 && this.chosen.size === this.rows.length;
      const choose = () => this.choose(all ? [] : this.rows.map((row) => row.key));
      heads.unshift(h("th", { scope: "col", class: "tick" }, [this.box(all, "Select all rows shown", choose, this.chosen.size > 0 && !all)]));
    }
    const caption = h("caption", { class: { unseen: this.hide_caption } }, this.caption);
    const table = h("table", [caption, h("thead", [h("tr", heads)]), h("tbody", this.ordered().map(this.row))]);
    return h("div", { class: ["table", { tall: this.tall }], role: "group", "aria-label": this.caption, tabindex: 0 }, [table]);
  },
};
