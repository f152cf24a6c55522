// A host: the next action, facts, and the timeline with the newest plan.

import { age, badge, coalesce, el, formatSpan, read, withCommands } from "./dom.js";

const MARKS = { done: "✓", running: "●", failed: "✕", pending: "○" };

function drawFacts(host) {
  const facts = [
    ["Pool", host.pool],
    ["Cluster", host.cluster && el("a", { href: `#/cluster/${host.namespace}/${host.cluster}` }, host.cluster)],
    ["Machine", host.machine],
    ["Addresses", host.addresses.join(", ")],
    ["Image", `${host.image} ${host.bootMode}`.trim()],
    ["Key", host.identity],
    ["Known for", host.created && age(host.created)],
  ];
  const shown = facts.filter(([, value]) => value);
  return el("dl", { class: "facts" }, shown.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function drawAdvice(host) {
  if (host.attention === "none") return el("p", { class: "advice none" }, "The host is as intended: there is nothing to do.");
  return el(
    "section",
    { class: `advice ${host.attention}`, "aria-label": "What to do" },
    el("p", { class: "cause" }, host.cause),
    el("p", { class: "next" }, el("b", {}, "Next "), withCommands(host.action)),
  );
}

function drawStep(step) {
  const detail = [step.attempt > 1 && `attempt ${step.attempt}`, step.lastFailure].filter(Boolean).join(": ");
  return el(
    "li",
    { class: step.state },
    el("span", { class: "mark", "aria-hidden": "true" }, MARKS[step.state]),
    el("span", { class: "step" }, step.name),
    el("span", { class: "unseen" }, step.state),
    el("span", { class: "detail" }, detail),
  );
}

function drawMoment(moment, steps) {
  const span = moment.lasts && moment.since
    ? moment.until ? formatSpan(moment.since, moment.until) : age(moment.since, "for ")
    : "";
  const when = moment.since ?? moment.until;
  return el(
    "li",
    { class: `moment ${moment.topic} ${moment.attention}` },
    el("span", { class: "when" }, when ? age(when, "", " ago") : "–"),
    el("div", {},
      el("p", {}, el("b", {}, moment.title), " ", el("span", { class: "span" }, span)),
      moment.detail && el("p", { class: "detail" }, moment.detail),
      moment.topic === "plan" && steps.length > 0 ? el("ol", { class: "steps" }, steps.map(drawStep)) : ""),
  );
}

function drawConditions(conditions) {
  const rows = conditions.map((condition) =>
    el("tr", {},
      el("td", {}, `${condition.type}=${condition.status}`),
      el("td", {}, condition.reason),
      el("td", {}, condition.since ? age(condition.since) : ""),
      el("td", {}, condition.message)));
  return el("details", { class: "conditions" },
    el("summary", {}, `Conditions (${conditions.length})`), el("table", {}, el("tbody", {}, rows)));
}

export function openHost({ namespace, name }) {
  const head = el("h1", { tabindex: "-1" }, name);
  const state = el("span", { class: "state" });
  const body = el("div", { class: "body" }, el("p", { class: "empty" }, "Reading…"));
  const node = el("div", { class: "host" },
    el("p", { class: "crumbs" }, el("a", { href: "#/" }, "Fleet"), ` / ${namespace}`),
    el("div", { class: "heading" }, head, state), body);
  const path = ["object", "machineinventory", namespace, name];

  const load = coalesce(async () => {
    const host = await read(path);
    if (!host) {
      state.replaceChildren();
      body.replaceChildren(el("p", { class: "empty" }, "The MachineInventory does not exist or cannot be read."));
      return;
    }
    const isOpen = body.querySelector("details.conditions")?.open ?? false;
    state.replaceChildren(badge(host.state, host.attention), host.reason && el("span", { class: "reason" }, host.reason));
    const conditions = drawConditions(host.conditions);
    conditions.open = isOpen;
    const steps = host.newestPlan?.steps ?? [];
    const logs = `\`kubectl baremetal logs -n ${namespace} ${name}\``;
    body.replaceChildren(
      drawAdvice(host),
      drawFacts(host),
      el("section", { "aria-labelledby": "life" },
        el("h2", { id: "life" }, "Timeline"),
        el("ol", { class: "timeline" }, host.timeline.map((moment) => drawMoment(moment, steps)))),
      host.newestPlan ? el("p", { class: "hint" }, "Outputs of the steps: ", withCommands(logs)) : "",
      conditions,
    );
  });
  const key = `machineinventory/${namespace}/${name}`;
  const update = ({ whole, touched }) => {
    if (whole || touched.has(key)) load();
  };
  load();
  return { title: name, node, head, update };
}
