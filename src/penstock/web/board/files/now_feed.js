// The plant this moment, from the event stream: a whole picture first, then differences put over it.
const { reactive, markRaw } = Vue;
import { setClock } from "/board/files/clock.js";

const SECTIONS = ["who", "totals", "hosts", "lanes", "gates", "priorities", "reasons", "ended", "waits", "hour"];

const LEAST_PAUSE_MS = 500; // before a stream that was refused is asked for again
const MOST_PAUSE_MS = 10_000;

function emptyPlant() {
  const plant = { known: false, live: false, slots: {} };
  for (const name of SECTIONS) plant[name] = {};
  return plant;
}

// Attempts by host, so that a change on one host draws that host and no other.
function putSlots(slots, changes) {
  for (const [key, entry] of Object.entries(changes)) {
    const cut = key.indexOf(":");
    const [place, host] = [key.slice(0, cut), key.slice(cut + 1)];
    if (entry === null) delete slots[host]?.[place];
    else (slots[host] ??= {})[place] = markRaw(entry);
  }
}

function put(plant, changes) {
  for (const name of SECTIONS) {
    for (const [key, entry] of Object.entries(changes[name] ?? {})) {
      if (entry === null) delete plant[name][key];
      else plant[name][key] = entry !== null && typeof entry === "object" ? markRaw(entry) : entry;
    }
  }
  putSlots(plant.slots, changes.slots ?? {});
}

// Whether the server still knows who looks: else it leads to the log-in.
async function isLoggedIn() {
  const answer = await fetch("/board/", { redirect: "manual", cache: "no-store" }).catch(() => null);
  return answer?.type !== "opaqueredirect" && answer?.status !== 401;
}

// Something reactive that keeps itself up to date until `close()`. A tab that nobody sees asks for nothing.
export function followPlant(address) {
  const plant = reactive(emptyPlant());
  let source = null;
  let again = null;
  let pause_ms = LEAST_PAUSE_MS;
  const open = () => {
    source = new EventSource(address);
    const time = (event) => setClock(JSON.parse(event.data).at);
    source.addEventListener("clock", time);
    source.addEventListener("beat", time);
    source.addEventListener("picture", (event) => {
      Object.assign(plant, emptyPlant(), { known: true, live: true });
      put(plant, JSON.parse(event.data));
    });
    source.addEventListener("changes", (event) => put(plant, JSON.parse(event.data)));
    source.onopen = () => {
      plant.live = true;
      pause_ms = LEAST_PAUSE_MS;
    };
    source.onerror = lost;
  };
  // The browser tries again by itself after a line that broke, but not after a refusal.
  const lost = () => {
    plant.live = false;
    if (source?.readyState !== EventSource.CLOSED) return;
    again = setTimeout(reopen, pause_ms);
    pause_ms = Math.min(2 * pause_ms, MOST_PAUSE_MS);
  };
  const reopen = async () => {
    again = null;
    const known = await isLoggedIn();
    if (!known) location.reload();
    else if (source?.readyState === EventSource.CLOSED) open(); // nobody left meanwhile
  };
  const close = () => {
    clearTimeout(again);
    source?.close();
    source = null;
  };
  const seen = () => (document.hidden ? close() : (source ?? open()));
  document.addEventListener("visibilitychange", seen);
  seen();
  return {
    plant,
    close() {
      document.removeEventListener("visibilitychange", seen);
      close();
    },
  };
}
