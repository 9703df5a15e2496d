// One knob: a slider and a number for the same value. Beyond the range of one that may be endless is "no limit".
const { h } = Vue;

const MOST = 10000;

export function knob(page, one) {
  const value = page.values[one.key];
  const end = one.endless ? one.most + 1 : one.most;
  const id = `knob-${one.key}`;
  const words = value === null ? "no limit" : String(value);
  const slide = (number) => page.turn(one, number > one.most ? null : number);
  // What is typed stays as it is while it is typed; a number beyond the slider makes that longer.
  const type = (text) => {
    page.typing = { key: one.key, text };
    const number = Math.round(Number(text));
    if (text === "" && one.endless) page.turn(one, null);
    if (text === "" || !Number.isFinite(number) || number < one.least) return;
    one.most = Math.max(one.most, Math.min(number, MOST));
    page.turn(one, Math.min(number, MOST));
  };
  const typed = page.typing?.key === one.key ? page.typing.text : value === null ? "" : value;
  const changed = value !== one.was;
  return h("div", { class: ["knob", { changed, turned: page.turned === one.key }], key: one.key }, [
    h("label", { for: id }, one.label),
    h("input", {
      type: "range", id, min: one.least, max: end, step: 1, value: value === null ? end : value,
      "aria-valuetext": words, "aria-describedby": `${id}-was`,
      onInput: (event) => slide(Number(event.target.value)),
    }),
    h("input", {
      type: "number", min: one.least, max: MOST, step: 1, value: typed, placeholder: one.endless ? "no limit" : "",
      "aria-label": `${one.group}, ${one.label}, as a number`, onInput: (event) => type(event.target.value), onBlur: () => (page.typing = null),
    }),
    h("small", { id: `${id}-was` }, [changed ? `was ${one.was === null ? "no limit" : one.was}` : one.note || ""]),
  ]);
}
