// Conditions, amounts and waits in words and signs, for the parts of the Now page.
const { h } = Vue;
import { now_s, spoken } from "/board/files/clock.js";

// As the dispatcher tells it: word, look, sign. Never by colour alone.
const CONDITIONS = {
  up: ["up", "good", "●"],
  down: ["down", "bad", "✕"],
  paused: ["paused", "waiting", "‖"],
  gated: ["held by a gate", "waiting", "◇"],
  probing: ["being tried", "waiting", "…"],
  "half-open": ["trying again", "waiting", "…"],
  "rate-limited": ["cooling: rate used up", "waiting", "◔"],
  open: ["open", "good", "●"],
  closed: ["closed", "bad", "✕"],
};
const WAITS = "dependency scheduled paused store-down gate lane host-down rate slots worker order dispatcher-down".split(" ");

export function badge(state, title) {
  const [word, look, sign] = CONDITIONS[state] ?? [state, "still", "·"];
  return h("span", { class: ["badge", look], title }, [h("i", { "aria-hidden": "true" }, sign), h("span", word)]);
}

// Since when, as it ticks: whole seconds at first.
export function lasted(since_s) {
  const seconds = Math.max(0, now_s.value - since_s);
  return seconds < 10 ? `${Math.floor(seconds)} s` : spoken(seconds);
}

export const whole = (number) => Math.round(number ?? 0).toLocaleString();

export const amount = (number) => (Number.isInteger(number) ? String(number) : number.toFixed(1));

export const usd = (spent) => `$${spent < 0.01 && spent > 0 ? spent.toFixed(4) : spent.toFixed(2)}`;

export function waitColour(reason) {
  const word = reason.split(":")[0];
  return `var(--wait-${WAITS.includes(word) ? word : "other"})`;
}

export const swatch = (reason) =>
  h("i", { class: "swatch", "aria-hidden": "true", style: { background: waitColour(reason) } });

// How much of something is used, read aloud as a whole.
export function meter(label, value, most, look = "") {
  const share = most > 0 ? Math.min(1, value / most) : 0;
  const told = {
    class: ["meter", look],
    role: "meter",
    "aria-label": label,
    "aria-valuenow": String(value),
    "aria-valuemin": "0",
    "aria-valuemax": String(most),
    "aria-valuetext": `${amount(value)} of ${amount(most)}`,
  };
  return h("span", told, h("i", { style: { width: `${share * 100}%` } }));
}

export const actButton = (label, spoken, press, { kind = "quiet", disabled = false } = {}) =>
  h("button", { type: "button", class: ["button small", kind], "aria-label": spoken, title: spoken, disabled, onClick: press }, label);
