// One finding in the list: its name, weight and gain; all of it when it is chosen.
const { h } = Vue;

const SIGNS = { high: "▲", medium: "◆", low: "▽" };

export function finding(page, one, place) {
  const chosen = place === page.chosen;
  const id = `finding-${place}`;
  return h("li", { class: ["finding", { chosen }], key: place }, [
    h("h3", [
      h(
        "button",
        {
          type: "button",
          class: "finding-head",
          "aria-expanded": chosen ? "true" : "false",
          "aria-controls": id,
          onClick: () => page.choose(place),
          onKeydown: (event) => page.key(event, place),
        },
        [
          h("span", { class: ["severity", one.severity] }, [h("i", { "aria-hidden": "true" }, SIGNS[one.severity]), ` ${one.severity}`]),
          h("span", { class: "finding-name" }, one.name),
          h("span", { class: "gain" }, one.gain || "holds up some tasks, not the run"),
        ],
      ),
    ]),
    h("div", { id, class: "finding-body stack", hidden: !chosen }, [
      h("p", one.cause),
      h("h4", "Evidence"),
      h("ul", one.evidence.map((words) => h("li", words))),
      h("h4", "Remedy"),
      h("p", [h("code", { class: "remedy" }, one.remedy)]),
      h("details", [
        h("summary", `What is ${one.name}?`),
        h("p", `${one.meaning[0].toUpperCase()}${one.meaning.slice(1)}.`),
        h("p", [h("b", "On a timeline: "), one.explained.sight]),
        h("p", [h("b", "Not this: "), one.explained.otherwise]),
        h("p", [h("b", "What helps: "), one.explained.remedy]),
      ]),
    ]),
  ]);
}
