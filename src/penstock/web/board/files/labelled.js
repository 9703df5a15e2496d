// A control with its label, what it is for, and what is wrong with it, bound so that it is read aloud with it.
const { h } = Vue;

export const SHARED = {
  label: String,
  hide_label: Boolean,
  description: { type: String, default: null },
  error: { type: String, default: null },
  disabled: Boolean,
  turn: { type: Number, default: 0 }, // counts up when Python sets the value: what is typed is kept otherwise
};

export function bound(component) {
  const id = `${component.$attrs.id}-control`;
  const told = [];
  if (component.description) told.push(`${id}-description`);
  if (component.error) told.push(`${id}-error`);
  return {
    id,
    disabled: component.disabled,
    "aria-describedby": told.join(" ") || undefined,
    "aria-invalid": component.error ? "true" : undefined,
  };
}

function below(component) {
  const id = `${component.$attrs.id}-control`;
  return [
    component.description ? h("p", { id: `${id}-description`, class: "description" }, component.description) : null,
    component.error ? h("p", { id: `${id}-error`, class: "error", role: "alert" }, component.error) : null,
  ];
}

export function labelled(component, control, kind) {
  const id = `${component.$attrs.id}-control`;
  const label = h("label", { for: id, class: { unseen: component.hide_label } }, component.label);
  const first = kind === "checkbox" ? [h("div", { class: "pair" }, [control, label])] : [label, control];
  return h("div", { class: ["field", kind] }, [...first, ...below(component)]);
}
