// The objects that need attention, grouped by reason.

import { badge, el, linkTo, withCommands } from "./dom.js";

const SHOWN = 2;
/** Objects other than hosts that a press of the button adds. */
const MORE = 100;

/** `filterBy(reason)` shows all hosts with a reason in the table of hosts. */
export function createAttention(filterBy) {
  const groups = new Map();
  const limits = new Map();
  let total = 0;
  let isDrawn = false;
  const list = el("div", { class: "groups" });
  const title = el("h2", { id: "attention-title" });
  const node = el("section", { class: "attention", "aria-labelledby": "attention-title" }, title, list);

  function remove(line) {
    const group = groups.get(line.reason);
    if (group?.delete(line.key)) total -= 1;
    if (group?.size === 0) groups.delete(line.reason);
  }

  function add(line) {
    if (!groups.has(line.reason)) groups.set(line.reason, new Map());
    if (!groups.get(line.reason).has(line.key)) total += 1;
    groups.get(line.reason).set(line.key, line);
  }

  function take({ before, after }) {
    if (before?.attention !== "act" && after?.attention !== "act") return;
    isDrawn = false;
    // A line that stays in its group keeps its place there.
    const stays = before?.attention === "act" && after?.attention === "act" && before.reason === after.reason;
    if (before?.attention === "act" && !stays) remove(before);
    if (after?.attention === "act") add(after);
  }

  function linkOf(line) {
    return linkTo(line.key.split("/")[0], line.namespace, line.name);
  }

  function drawEntry(line) {
    const kind = line.key.split("/")[0];
    const about = kind === "machineinventory" ? "" : el("span", { class: "kind" }, line.kind);
    return el(
      "li",
      { class: "entry" },
      el("a", { class: "name", href: linkOf(line) }, line.name),
      about,
      el("p", { class: "cause" }, line.cause || "The object gives no message."),
      el("p", { class: "next" }, el("b", {}, "Next "), withCommands(line.action)),
    );
  }

  function drawMore(count, where, onclick) {
    return count > 0 ? el("button", { type: "button", class: "more", onclick }, `${count} more${where}`) : "";
  }

  function drawGroup([reason, lines]) {
    const isHost = (line) => line.key.startsWith("machineinventory/");
    const hosts = [...lines.values()].filter(isHost);
    const others = [...lines.values()].filter((line) => !isHost(line));
    const shownHosts = hosts.slice(0, SHOWN);
    const shownOthers = others.slice(0, limits.get(reason) ?? SHOWN - shownHosts.length);
    const next = others[shownOthers.length];
    const expand = () => {
      limits.set(reason, shownOthers.length + MORE);
      isDrawn = false;
      draw();
      focus(linkOf(next));
    };
    return el(
      "article",
      { class: "group", "data-reason": reason },
      el("h3", {}, badge(reason || "Unknown", "act"), el("span", { class: "count" }, String(lines.size))),
      el("ul", {}, [...shownHosts, ...shownOthers].map(drawEntry)),
      drawMore(hosts.length - shownHosts.length, " in the table", () => filterBy(reason)),
      drawMore(others.length - shownOthers.length, "", expand),
    );
  }

  function focus(href) {
    list.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus();
  }

  /** Returns the number of objects. */
  function draw() {
    if (isDrawn) return total;
    isDrawn = true;
    title.textContent = total === 0 ? "Nothing needs attention" : `Needs attention (${total.toLocaleString("en")})`;
    node.classList.toggle("quiet", total === 0);
    const focused = node.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const sorted = [...groups].sort(([one], [other]) => one.localeCompare(other));
    list.replaceChildren(...sorted.map(drawGroup));
    if (focused) focus(focused);
    return total;
  }

  function clear() {
    groups.clear();
    total = 0;
    isDrawn = false;
  }

  return { node, take, draw, clear };
}
