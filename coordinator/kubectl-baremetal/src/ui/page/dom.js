// Elements and texts. Texts become text nodes and never markup.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

/** Sets a text only if it differs, because setting an equal text still costs a layout. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Gives a node one child for each item. The child of a known key is kept. */
export function reconcile(node, items, keyOf, create, update) {
  const known = new Map([...node.children].map((child) => [child.dataset.item, child]));
  let next = node.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const child = known.get(key) ?? create(item);
    child.dataset.item = key;
    known.delete(key);
    update(child, item);
    if (child === next) next = next.nextElementSibling;
    else node.insertBefore(child, next);
  }
  for (const child of known.values()) child.remove();
}

export function formatDuration(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/** A duration, more exact than an age. */
export function formatSpan(since, until) {
  const seconds = Math.max(0, Math.round((Date.parse(until) - Date.parse(since)) / 1000));
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m ${seconds % 60}s`;
  return `${Math.floor(minutes / 60)}h ${minutes % 60}m`;
}

export function formatAge(since) {
  return since ? formatDuration(Date.now() - Date.parse(since)) : "–";
}

/** An age that `refreshAges` keeps up to date. */
export function age(since, prefix = "", suffix = "") {
  const node = el("time", { datetime: since, title: since ? new Date(since).toLocaleString() : undefined });
  node.dataset.prefix = prefix;
  node.dataset.suffix = suffix;
  showAge(node);
  return node;
}

function showAge(node) {
  const { prefix, suffix } = node.dataset;
  setText(node, `${prefix}${formatAge(node.getAttribute("datetime"))}${suffix}`);
}

export function refreshAges() {
  for (const node of document.querySelectorAll("time[data-prefix]")) showAge(node);
}

const WORDS = { act: "needs attention", wait: "in progress", none: "as intended" };

export function badge(text, attention) {
  return el("span", { class: `badge ${attention}`, title: WORDS[attention] }, text);
}

/** A text whose commands, between backticks, can be copied. */
export function withCommands(text) {
  return text.split("`").map((part, index) => {
    if (index % 2 === 0) return part;
    return el("span", { class: "command" }, el("code", {}, part), copyButton(part));
  });
}

function copyButton(text) {
  const button = el("button", { type: "button", class: "copy", "aria-label": `Copy ${text}` }, "Copy");
  button.addEventListener("click", async (event) => {
    event.stopPropagation();
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    button.addEventListener("blur", () => (button.textContent = "Copy"), { once: true });
  });
  return button;
}

/** The address of the view of an object. */
export function linkTo(kind, namespace, name) {
  const view = { machineinventory: "host", cluster: "cluster" }[kind] ?? `why/${kind}`;
  return `#/${view}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

/** The view of an object; `null` if the object does not exist. */
export async function read(path) {
  const answer = await fetch(path.map(encodeURIComponent).join("/"));
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

/** Pause after reading a view that may be large. */
export const PAUSE = 500;

/** Returns a function that runs `work`, never twice at the same time. Calls during a run cause one more run. */
export function coalesce(work, pause = 0) {
  let running = false;
  let again = false;
  return async () => {
    if (running) {
      again = true;
      return;
    }
    running = true;
    do {
      again = false;
      // The header of the page shows that the connection is lost.
      await work().catch(() => {});
      if (pause) await new Promise((resolve) => setTimeout(resolve, pause));
    } while (again);
    running = false;
  };
}
