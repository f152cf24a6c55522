// The fleet: objects that need attention, hosts by state, and all hosts.

import { createAttention } from "./attention.js";
import { age, badge, el, linkTo, reconcile, setText } from "./dom.js";
import { hosts, others, status } from "./live.js";
import { createTable, textColumn } from "./table.js";

// The states in the order of the overview, with their tones.
const STATES = {
  Failed: "act", Quarantined: "act", Unreachable: "act", Pending: "act", Revoked: "idle", Unavailable: "idle",
  Deleting: "work", Installing: "work", Cleaning: "work", Provisioning: "work", Executing: "work",
  Allocated: "work", Running: "good", Available: "free",
};
const URGENCY = { act: 0, wait: 1, none: 2 };

function compare(one, other) {
  return URGENCY[one.attention] - URGENCY[other.attention] || one.key.localeCompare(other.key);
}

/** The index at which `line` is, or belongs, in sorted `lines`. */
function position(lines, line) {
  let [low, high] = [0, lines.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(lines[middle], line) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The filter, which stays while the page is open.
const wanted = { words: [], state: null, reason: null };

function isWanted(line) {
  if (wanted.state && line.state !== wanted.state) return false;
  if (wanted.reason !== null && (line.attention !== "act" || line.reason !== wanted.reason)) return false;
  return wanted.words.every((word) => line.text.includes(word));
}

const COLUMNS = [
  {
    title: "Host",
    fill(cell, line) {
      const href = linkTo("machineinventory", line.namespace, line.name);
      cell.replaceChildren(el("a", { href, tabindex: "-1" }, line.name));
      cell.title = `${line.namespace}/${line.name}`;
    },
  },
  { title: "State", fill: (cell, line) => cell.replaceChildren(badge(line.state, line.attention)) },
  textColumn("Reason", (line) => line.reason),
  textColumn("Pool", (line) => line.pool),
  textColumn("Machine", (line) => line.machine),
  { title: "Age", fill: (cell, line) => cell.replaceChildren(age(line.created)) },
  textColumn("Next action", (line) => line.action.replaceAll("`", "")),
];

export function openFleet({ announce }) {
  const counts = new Map();
  let rows = [];
  let asks = null;
  const attention = createAttention((reason) => setReason(reason));
  const table = createTable({
    label: "Hosts",
    columns: COLUMNS,
    rows: () => rows,
    open: (line) => (location.hash = linkTo("machineinventory", line.namespace, line.name)),
  });
  const chips = el("div", { class: "chips", role: "group", "aria-label": "Hosts by state" });
  const bar = el("div", { class: "bar", "aria-hidden": "true" });
  const input = el("input", {
    type: "search", placeholder: "Filter by name, pool, machine, address, reason…  ( / )",
    "aria-label": "Filter the hosts", autocomplete: "off", spellcheck: "false", value: wanted.words.join(" "),
  });
  const told = el("span", { class: "told", role: "status" });
  const empty = el("p", { class: "empty", hidden: true });
  const head = el("h1", { tabindex: "-1" }, "Fleet");
  const node = el(
    "div", { class: "fleet" }, head,
    el("section", { class: "states", "aria-label": "Hosts by state" }, bar, chips),
    attention.node,
    el("section", { class: "hosts", "aria-label": "Hosts" },
      el("div", { class: "filter" }, input, told), table.node, empty),
  );

  input.addEventListener("input", () => {
    wanted.words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    rebuild();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      table.node.focus();
      table.select(0);
    }
  });

  function setReason(reason) {
    Object.assign(wanted, { reason, state: null });
    rebuild();
    table.node.focus();
  }

  function toggleState(state) {
    Object.assign(wanted, { state: wanted.state === state ? null : state, reason: null });
    rebuild();
  }

  function createChip({ label, tone }) {
    const choose = () => (label in STATES ? toggleState(label) : toggleState(null));
    return el("button", { type: "button", class: `chip ${tone}`, "data-state": label, onclick: choose },
      el("span", { class: "label" }, label), el("b"));
  }

  function drawChips() {
    const total = hosts.size;
    const present = Object.keys(STATES).filter((state) => counts.get(state));
    const items = [
      { label: "All", count: total, tone: "all", isPressed: !wanted.state && wanted.reason === null },
      ...present.map((state) =>
        ({ label: state, count: counts.get(state), tone: STATES[state], isPressed: wanted.state === state })),
    ];
    if (wanted.reason !== null) items.push({ label: wanted.reason, count: rows.length, tone: "act", isPressed: true });
    reconcile(chips, items, (item) => item.label, createChip, (chip, item) => {
      chip.setAttribute("aria-pressed", item.isPressed);
      setText(chip.lastChild, item.count.toLocaleString("en"));
    });
    const create = (state) => el("span", { class: STATES[state], title: state });
    reconcile(bar, present, (state) => state, create, (part, state) => (part.style.flexGrow = counts.get(state)));
  }

  function draw() {
    drawChips();
    const count = attention.draw();
    if (asks !== null && count > asks) announce(`${count} objects need attention`);
    asks = count;
    attention.node.hidden = !status.complete;
    setText(told, rows.length === hosts.size ? "" : `${rows.length.toLocaleString("en")} of ${hosts.size.toLocaleString("en")}`);
    const text = hosts.size === 0 ? "No host has registered. Boot one from a seed ISO." : "No host matches. Esc clears the filter.";
    setText(empty, status.complete ? text : "Reading the fleet…");
    empty.hidden = rows.length > 0;
    table.node.hidden = rows.length === 0;
    table.refresh();
  }

  function count(line, by) {
    if (line) counts.set(line.state, (counts.get(line.state) ?? 0) + by);
  }

  /** Filters and sorts all hosts again. */
  function rebuild() {
    rows = [...hosts.values()].filter(isWanted).sort(compare);
    draw();
  }

  function takeHost({ before, after }) {
    count(before, -1);
    count(after, 1);
    if (before && isWanted(before)) {
      const index = position(rows, before);
      if (rows[index] === before) rows.splice(index, 1);
    }
    if (after && isWanted(after)) rows.splice(position(rows, after), 0, after);
  }

  let scheduled = false;

  function update(change) {
    if (change.whole) {
      counts.clear();
      attention.clear();
      for (const line of hosts.values()) count(line, 1);
      for (const line of [...hosts.values(), ...others.values()]) attention.take({ after: line });
      rows = [...hosts.values()].filter(isWanted).sort(compare);
    }
    for (const one of change.changes) {
      attention.take(one);
      if ((one.after ?? one.before).key.startsWith("machineinventory/")) takeHost(one);
    }
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      draw();
    });
  }

  /** Clears the filter; `false` if there was none. */
  function escape() {
    const had = wanted.words.length > 0 || wanted.state !== null || wanted.reason !== null;
    Object.assign(wanted, { words: [], state: null, reason: null });
    input.value = "";
    input.blur();
    rebuild();
    return had;
  }

  function filter() {
    input.focus();
    input.select();
  }

  function press(key) {
    if (key !== "ArrowDown" && key !== "ArrowUp") return false;
    table.node.focus();
    return table.press(key);
  }

  update({ whole: true, changes: [], touched: new Set() });
  return { title: "Fleet", node, head, update, escape, press, filter, close: () => table.close() };
}
