// One tick a second for every elapsed time on the page, by the server's clock: the reader's may be wrong.
const { shallowRef } = Vue;

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

// 0.4 s, 12 s, 3 m 05 s, 2 h 10 m, 3 d 4 h: two units at most.
export function spoken(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  if (s < 3600) return `${Math.floor(s / 60)} m ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two((s % 3600) / 60)} m`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// Today's moments as a time, this year's with the day, others with the year.
export function shortMoment(at_s) {
  const when = new Date(at_s * 1000);
  const today = new Date(now_s.value * 1000);
  const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  if (when.toDateString() === today.toDateString()) return when.toLocaleTimeString([], clock);
  const day = { month: "short", day: "numeric" };
  if (when.getFullYear() === today.getFullYear()) return when.toLocaleString([], { ...day, ...clock });
  return when.toLocaleDateString([], { ...day, year: "numeric" });
}

export function exactMoment(at_s) {
  const when = new Date(at_s * 1000);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const part = String(when.getMilliseconds()).padStart(3, "0");
  return `${when.toLocaleString([], { dateStyle: "full", timeStyle: "medium" })}.${part} (${zone})`;
}
