// The open view, the keys that work everywhere, and the status of the connection.

import { openCluster, openClusters } from "./cluster.js";
import { el, refreshAges, setText } from "./dom.js";
import { openFleet } from "./fleet.js";
import { openHost } from "./host.js";
import { connect, status, subscribe } from "./live.js";
import { openWhy } from "./why.js";

const AGES = 5000;
const content = document.getElementById("content");
const announce = (text) => setText(document.getElementById("announce"), text);
let view = null;
let isFilterNext = false;

function openView() {
  const [name, ...words] = location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
  if (name === "host") return openHost({ namespace: words[0], name: words[1] });
  if (name === "cluster") return openCluster({ namespace: words[0], name: words[1] });
  if (name === "why") return openWhy({ kind: words[0], namespace: words[1], name: words[2] });
  if (name === "clusters") return openClusters();
  return openFleet({ announce });
}

function show() {
  view?.close?.();
  const isFirst = view === null;
  view = openView();
  content.replaceChildren(view.node);
  document.title = `${view.title} · Bare-metal hosts`;
  const section = /^#\/cluster/.test(location.hash) ? "clusters" : "fleet";
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === section) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  window.scrollTo(0, 0);
  if (isFilterNext) view.filter?.();
  else if (!isFirst) view.head.focus({ preventScroll: true });
  isFilterNext = false;
}

const CONNECTIONS = {
  connecting: "connecting",
  live: "live",
  lost: "not connected: is `kubectl baremetal ui` still running?",
};

function showStatus() {
  const connection = document.getElementById("connection");
  const state = status.connection === "live" && !status.complete ? "connecting" : status.connection;
  connection.className = `connection ${state}`;
  setText(connection, CONNECTIONS[state]);
  const { context, namespace } = status.place;
  setText(document.getElementById("place"), [context, namespace ?? "all namespaces"].filter(Boolean).join(" · "));
  const notes = document.getElementById("notes");
  const shown = [...notes.children].map((note) => note.textContent);
  if (shown.join("\n") !== status.notes.join("\n")) {
    notes.replaceChildren(...status.notes.map((note) => el("p", {}, note)));
  }
}

function goBack() {
  if (view.escape?.()) return;
  const target = view.back ?? "#/";
  if (location.hash !== target) location.hash = target;
}

function isTyping(target) {
  return target instanceof HTMLInputElement;
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    goBack();
  } else if (isTyping(event.target)) {
    return;
  } else if (event.key === "/") {
    isFilterNext = !view.filter;
    if (isFilterNext) location.hash = "#/";
    else view.filter();
  } else if (event.target.closest("button, summary") || !view.press?.(event.key)) {
    return;
  }
  event.preventDefault();
});

window.addEventListener("hashchange", show);
subscribe((change) => {
  showStatus();
  view.update?.(change);
});
setInterval(refreshAges, AGES);
show();
connect();
