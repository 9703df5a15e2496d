// The elements of a picture: canvases, buttons, filters, legend, and the same as a table. Ids begin with the picture's own
// prefix, so that several pictures, or a page around one, do not get into each other's way.

const FILTERS = ["lane", "host", "kind", "state", "reason"];
const LABELS = { lane: "Lane", host: "Host", kind: "Kind", state: "State", reason: "Waited for" };
const SORTED_BY = {
  arrival: "arrival", start: "first start", end: "end", total: "longest first", waited: "longest wait first", ran: "longest run first",
  lane: "lane, kind",
};
const BUTTONS = [
  ["zoom-in", "+", "Zoom in (+)", "Zoom in"], ["zoom-out", "−", "Zoom out (-)", "Zoom out"],
  ["taller", "↕", "Taller rows (])", "Taller rows"], ["flatter", "≡", "Flatter rows ([)", "Flatter rows"],
  ["fit", "Fit", "Show all (0)"], ["reset", "Clear", "No filter"],
];
const KEYS_TOLD = "Wheel or + and − zoom in time, Ctrl with the wheel or [ and ] change the height of rows, Shift with the wheel scrolls. " +
  "Drag or the arrow keys pan. 0 shows all. N and P go from task to task and tell the story of each, Enter zooms to it, Escape leaves it. " +
  "/ searches by id. A click keeps a story open.";
const KEYS_OPENING = "Up and down go from task to task and tell the story of each, Enter or a click opens the task, Z zooms to it, Escape leaves it. " +
  "Wheel or + and − zoom in time, Ctrl with the wheel or [ and ] change the height of rows, Shift with the wheel or Page up and down scroll. " +
  "Drag, left and right pan. 0 shows all. / searches by id.";

// An element with attributes; `id` gets the prefix. Children are elements or texts.
function maker(prefix, parts) {
  return (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === undefined) continue;
      made.setAttribute(key, key === "id" ? prefix + value : value);
    }
    if (attributes.id) parts[attributes.id] = made;
    made.append(...children);
    return made;
  };
}

// Puts them into `root`; the parts by their names. `how`: see Picture.
function makeFrame(root, how) {
  const parts = {}, prefix = how.prefix || "", make = maker(prefix, parts);
  root.classList.add("timeline");
  const buttons = BUTTONS.concat(how.theme ? [["theme", "Theme", "Light or dark"]] : []);
  const named = how.heading ? { "aria-labelledby": how.heading.id } : { "aria-label": how.label || "Timeline" };
  root.append(
    make("div", { class: "head" },
      ...(how.heading ? [how.heading] : []),
      make("p", { id: "told" }),
      make("span", { class: "buttons", role: "group", "aria-label": "View" },
        ...buttons.map(([id, text, title, label]) => make("button", { type: "button", id, title, "aria-label": label }, text)))),
    makeControls(make),
    make("p", { id: "status", class: "status", role: how.quiet ? undefined : "status", "aria-live": how.quiet ? undefined : "polite" }),
    make("div", { class: "plot" },
      make("canvas", { id: "bars", class: how.open ? "bars opens" : "bars", tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-describedby": `${prefix}keys`, ...named }),
      make("div", { id: "under-frame", class: "under-frame", tabindex: "0", role: "region", "aria-label": "Slots in use and queue" },
        make("canvas", { id: "under", class: "under", role: "img", "aria-label": "Slots in use per host, and tasks that waited, over time" }),
        make("div", { id: "under-space" }))),
    make("section", { id: "story", class: "story", role: "tooltip", hidden: "" }),
    make("div", { id: "spoken", class: "spoken", "aria-live": "polite" }),
    makeFoot(make, how));
  return parts;
}

function makeControls(make) {
  const labelled = (text, field) => make("label", {}, `${text} `, field);
  const order = make("select", { id: "order" }, ...Object.entries(SORTED_BY).map(([value, text]) => make("option", { value }, text)));
  return make("form", { id: "controls", class: "controls", role: "search", "aria-label": "Filter and view" },
    labelled("Search", make("input", { id: "search", type: "search", placeholder: "part of an id", autocomplete: "off", spellcheck: "false" })),
    ...FILTERS.map((name) => labelled(LABELS[name], make("select", { id: name }))),
    labelled("Order", order),
    make("label", { class: "check" }, make("input", { id: "outliers", type: "checkbox" }), " outliers only"));
}

function makeFoot(make, how) {
  return make("div", { class: "foot" },
    make("section", { id: "evidence", class: "evidence", "aria-label": "Marked", hidden: "" }, make("h2", {}, "Marked"), make("ol", { id: "evidence-list" })),
    make("section", { "aria-label": "Legend" },
      make("div", { class: "group" }, make("h2", {}, "Waiting"), make("ul", { id: "legend-waits", class: "legend" })),
      make("div", { class: "group" }, make("h2", { id: "running" }, "Running"), make("ul", { id: "legend-hosts", class: "legend" })),
      make("div", { class: "group", id: "signs" }, make("h2", {}, "Signs"), make("ul", { id: "legend-signs", class: "legend" }))),
    make("details", { id: "marked", hidden: "" }, make("summary"), make("ul"), make("p")),
    make("details", { id: "table" }, make("summary", {}, "As a table"), make("p", { id: "table-told" }), make("div", { id: "table-rows", class: "table" })),
    make("details", {}, make("summary", {}, "Keys and mouse"), make("p", { id: "keys" }, how.open ? KEYS_OPENING : KEYS_TOLD)));
}
