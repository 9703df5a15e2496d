// Lanes with what runs and waits in them, and gates with what they hold.
const { h } = Vue;
import { exactMoment } from "/board/files/clock.js";
import { actButton, amount, badge, lasted, meter, usd, whole } from "/board/files/now_words.js";

function reserved(reserve) {
  const parts = Object.entries(reserve).map(([host, units]) => {
    const kept = Object.entries(units).map(([unit, n]) => (unit === "slots" ? amount(n) : `${amount(n)} ${unit}`));
    return `${kept.join(" + ")} on ${host}`;
  });
  return parts.join(", ");
}

function running(name, lane) {
  if (lane.max_running == null) return [h("span", { class: "num" }, whole(lane.running))];
  return [
    h("span", { class: "num" }, `${lane.running} of ${lane.max_running} `),
    meter(`Running in lane ${name}`, lane.running, lane.max_running),
  ];
}

// A lane that is paused with everything has no button of its own: it would change nothing that one sees.
function standing(name, lane, plant, mayAct, act) {
  if (plant.who.paused) return [badge("paused"), h("span", { class: "soft" }, lane.paused ? "and with everything" : "with everything")];
  const told = lane.paused ? badge("paused") : badge("open");
  if (!mayAct) return [told];
  const [sign, word] = lane.paused ? ["▶", "Resume"] : ["‖", "Pause"];
  const press = () => act({ do: word.toLowerCase(), scope: "lane", name });
  return [told, actButton(`${sign} ${word}`, `${word} lane ${name}`, press, { disabled: !plant.live })];
}

export function lanesTable(plant, mayAct, act) {
  const { lanes } = plant;
  const money = Object.values(lanes).some((lane) => lane.usd !== undefined);
  const head = ["Lane", "Running", "Queued", "Reserve", ...(money ? ["Today"] : []), "State"];
  const rows = Object.entries(lanes).map(([name, lane]) => {
    return h("tr", { key: name, "data-lane": name, "data-since": lane.since }, [
      h("th", { scope: "row" }, h("a", { href: `/board/queue?lane=${encodeURIComponent(name)}` }, name)),
      h("td", { class: "lane-running" }, running(name, lane)),
      h("td", { class: "num" }, whole(lane.queued)),
      h("td", reserved(lane.reserve) || h("span", { class: "soft" }, "none")),
      money ? h("td", { class: "num" }, lane.usd === undefined ? "" : usd(lane.usd) + (lane.budget == null ? "" : ` of ${usd(lane.budget)}`)) : null,
      h("td", h("span", { class: "cluster" }, standing(name, lane, plant, mayAct, act))),
    ]);
  });
  return h("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Lanes" }, [
    h("table", [
      h("thead", h("tr", head.map((title) => h("th", { scope: "col", class: { num: title === "Queued" } }, title)))),
      h("tbody", rows),
    ]),
  ]);
}

export function gatesList(gates) {
  const rows = Object.entries(gates).sort(([, a], [, b]) => a.open - b.open).map(([name, gate]) =>
    h("li", { key: name, class: "gate", "data-gate": name }, [
      badge(gate.open ? "open" : "closed"),
      h("span", { class: "gate-name" }, name),
      h("span", { class: gate.open ? "soft" : "told" }, [
        gate.detail,
        gate.since ? h("span", { class: "soft", title: exactMoment(gate.since) }, `${gate.detail ? " · " : ""}for ${lasted(gate.since)}`) : null,
      ]),
      gate.holds ? h("span", { class: "soft gate-holds" }, `holds ${gate.holds}`) : null,
    ]),
  );
  return h("ul", { class: "gates" }, rows);
}
