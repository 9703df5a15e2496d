// One knob: a slider and a number for the same value. Beyond the range of one that may be endless is "no limit".
const { h } = Vue;

export function knob(page, one) {
  const value = page.values[one.key];
  const end = one.endless ? one.most + 1 : one.most;
  const id = `knob-${one.key}`;
  const words = value === null ? "no limit" : String(value);
  const set = (text) => {
    const number = Math.round(Number(text));
    if (text === "" && one.endless) return page.turn(one, null);
    if (text === "" || Number.isNaN(number)) return undefined;
    return page.turn(one, one.endless && number > one.most ? null : Math.min(one.most, Math.max(one.least, number)));
  };
  const changed = value !== one.was;
  return h("div", { class: ["knob", { changed, turned: page.turned === one.key }], key: one.key }, [
    h("label", { for: id }, one.label),
    h("input", {
      type: "range", id, min: one.least, max: end, step: 1, value: value === null ? end : value,
      "aria-valuetext": words, "aria-describedby": `${id}-was`,
      onInput: (event) => set(event.target.value),
      onFocus: () => page.look?.(one),
    }),
    h("input", {
      type: "number", min: one.least, max: one.most, step: 1, value: value === null ? "" : value, placeholder: one.endless ? "no limit" : "",
      "aria-label": `${one.group}, ${one.label}, as a number`, onChange: (event) => set(event.target.value),
    }),
    h("small", { id: `${id}-was` }, [changed ? `was ${one.was === null ? "no limit" : one.was}` : one.note || ""]),
  ]);
}
