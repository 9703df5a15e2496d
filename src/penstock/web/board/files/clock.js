// One tick a second for every elapsed time on the page, by the server's clock: the reader's may be wrong.
const { shallowRef } = Vue;
import { seconds } from "/board/files/spans_of_time.js";

let ahead_s = 0; // how far the server is ahead of this browser
export const now_s = shallowRef(Date.now() / 1000);

export function setClock(server_s) {
  const difference = server_s - Date.now() / 1000;
  ahead_s = Math.abs(difference) > 3 ? difference : 0; // less may be the way here
  now_s.value = Date.now() / 1000 + ahead_s;
}

setInterval(() => {
  if (!document.hidden) now_s.value = Date.now() / 1000 + ahead_s;
}, 1000);

export { seconds as spoken };

// How long something has gone on: in whole seconds, for it ticks. `plus_s` is what had been before.
export function ticking(since_s, plus_s = 0) {
  const whole = Math.floor(Math.max(0, now_s.value - since_s + plus_s));
  return whole < 10 ? `${whole} s` : seconds(whole);
}

// Today's moments as a time, this year's with the day, others with the year; as everywhere of 24 hours.
export function shortMoment(at_s) {
  const when = new Date(at_s * 1000);
  const today = new Date(now_s.value * 1000);
  const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  if (when.toDateString() === today.toDateString()) return when.toLocaleTimeString([], clock);
  const day = { month: "short", day: "numeric" };
  if (when.getFullYear() === today.getFullYear()) return when.toLocaleString([], { ...day, ...clock });
  return when.toLocaleDateString([], { ...day, year: "numeric" });
}

export function exactMoment(at_s) {
  const when = new Date(at_s * 1000);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const part = String(when.getMilliseconds()).padStart(3, "0");
  return `${when.toLocaleString([], { dateStyle: "full", timeStyle: "medium", hourCycle: "h23" })}.${part} (${zone})`;
}
