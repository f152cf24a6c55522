// The chain of causes from an object down to the object to act on.

import { age, badge, coalesce, el, linkTo, PAUSE, read, withCommands } from "./dom.js";

function drawChain(why) {
  const link = ({ object, attention, reason, message, since }) =>
    el("li", {},
      el("a", { href: linkTo(object.kind.toLowerCase(), object.namespace, object.name) },
        `${object.kind.toLowerCase()}/${object.name}`), " ",
      attention === "none" ? badge("as intended", "none") : badge(reason, attention),
      since && attention !== "none" ? el("span", { class: "span" }, age(since, "for ")) : "",
      message && attention !== "none" ? el("p", { class: "detail" }, message) : "");
  return el("section", { class: "chain", "aria-label": "Causes" },
    el("ol", {}, why.links.map(link)),
    el("dl", {}, why.cause ? el("div", {}, el("dt", {}, "Cause"), el("dd", {}, why.cause)) : ""),
    why.action === "none" ? "" : el("p", { class: "next" }, el("b", {}, "Next "), withCommands(why.action)));
}

export function openWhy({ kind, namespace, name }) {
  const head = el("h1", { tabindex: "-1" }, `${kind}/${name}`);
  const body = el("div", {}, el("p", { class: "empty" }, "Reading…"));
  const node = el("div", { class: "why" },
    el("p", { class: "crumbs" }, el("a", { href: "#/" }, "Fleet"), ` / ${namespace}`), head, body);
  let shown = null;
  const load = coalesce(async () => {
    const why = await read(["why", kind, namespace, name]);
    const text = JSON.stringify(why);
    if (text === shown) return;
    shown = text;
    body.replaceChildren(why ? drawChain(why) : el("p", { class: "empty" }, "The object does not exist or cannot be read."));
  }, PAUSE);
  // A change of any object may change the chain.
  const update = ({ isStatus }) => {
    if (!isStatus) load();
  };
  load();
  return { title: name, node, head, update };
}
