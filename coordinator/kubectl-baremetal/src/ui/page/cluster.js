// Clusters, and the tree of a Cluster with machines, hosts, plans and steps.

import { age, badge, coalesce, el, linkTo, PAUSE, read } from "./dom.js";
import { others, status } from "./live.js";

/** Branches of a node that are drawn at once. */
const SHOWN = 100;

export function openClusters() {
  const head = el("h1", { tabindex: "-1" }, "Clusters");
  const list = el("ul", { class: "clusters" });
  const node = el("div", {}, head, list);

  function draw() {
    const lines = [...others.values()].filter((line) => line.kind === "Cluster");
    lines.sort((one, other) => one.key.localeCompare(other.key));
    const focused = list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const items = lines.map((line) => {
      const state = line.attention === "none" ? line.state || "ready" : line.reason;
      return el("li", {},
        el("a", { href: linkTo("cluster", line.namespace, line.name) }, line.name),
        el("span", { class: "kind" }, line.namespace), badge(state, line.attention),
        el("span", { class: "span" }, age(line.created)),
        line.cause && el("p", { class: "detail" }, line.cause));
    });
    const none = status.complete ? "There is no Cluster." : "Reading the fleet…";
    list.replaceChildren(...(items.length ? items : [el("li", { class: "empty" }, none)]));
    if (focused) list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }

  function press(key) {
    if (key !== "ArrowDown" && key !== "ArrowUp") return false;
    const links = [...list.querySelectorAll("a")];
    const index = links.indexOf(document.activeElement) + (key === "ArrowDown" ? 1 : -1);
    links[Math.min(Math.max(index, 0), links.length - 1)]?.focus();
    return true;
  }

  draw();
  return { title: "Clusters", node, head, press, update: draw };
}

export function openCluster({ namespace, name }) {
  const head = el("h1", { tabindex: "-1" }, name);
  const tree = el("ul", { class: "tree", role: "tree", "aria-label": `Cluster ${name}` });
  const node = el("div", {},
    el("p", { class: "crumbs" }, el("a", { href: "#/clusters" }, "Clusters"), ` / ${namespace}`), head, tree);
  const closed = new Set();
  const limits = new Map();
  let root = null;
  let current = null;

  function drawBranch(branch, parent, level) {
    const path = `${parent}/${branch.name}`;
    const children = branch.children ?? [];
    const isOpen = !closed.has(path);
    const [kind, ...rest] = branch.name.split("/");
    const href = kind === "machineinventory" ? linkTo(kind, namespace, rest.join("/")) : null;
    const [done, all] = branch.progress ?? [];
    const label = el("div", { class: `branch ${branch.attention}` },
      el("span", { class: "arrow", "aria-hidden": "true" }, children.length === 0 ? "" : isOpen ? "▾" : "▸"),
      href ? el("a", { href, tabindex: "-1" }, branch.name) : el("b", {}, branch.name),
      all ? el("progress", { value: done, max: all, "aria-label": `${done} of ${all} steps` }) : "",
      all ? el("span", { class: "span" }, `${done}/${all}`) : "",
      el("span", { class: "state", title: branch.state }, branch.state));
    const item = el("li", {
      role: "treeitem", tabindex: "-1", "data-path": path, "data-href": href, "aria-level": level,
      "aria-expanded": children.length ? String(isOpen) : undefined,
    }, label);
    label.addEventListener("click", (event) => {
      if (!event.target.closest("a")) toggle(path, isOpen);
    });
    if (children.length > 0 && isOpen) {
      const limit = limits.get(path) ?? SHOWN;
      const more = children.length - limit;
      item.append(el("ul", { role: "group" },
        children.slice(0, limit).map((child) => drawBranch(child, path, level + 1)),
        more > 0 ? el("li", { role: "none" }, el("button", {
          type: "button", class: "more", onclick: () => { limits.set(path, limit + SHOWN); draw(); },
        }, `${more} more`)) : ""));
    }
    return item;
  }

  function draw() {
    const hadFocus = tree.contains(document.activeElement);
    if (!root) {
      const text = "The Cluster does not exist or cannot be read.";
      tree.replaceChildren(el("li", { class: "empty", role: "none" }, text));
      return;
    }
    tree.replaceChildren(drawBranch(root, "", 1));
    const items = [...tree.querySelectorAll("[role=treeitem]")];
    focusItem(items.find((item) => item.dataset.path === current) ?? items[0], hadFocus);
  }

  function focusItem(item, withFocus) {
    if (!item) return;
    tree.querySelector("[tabindex='0']")?.setAttribute("tabindex", "-1");
    item.setAttribute("tabindex", "0");
    current = item.dataset.path;
    if (withFocus) item.focus();
  }

  function toggle(path, isOpen) {
    if (isOpen) closed.add(path);
    else closed.delete(path);
    current = path;
    draw();
  }

  function press(key) {
    const items = [...tree.querySelectorAll("[role=treeitem]")];
    const index = items.findIndex((item) => item.dataset.path === current);
    const item = items[index];
    if (!item) return false;
    const expanded = item.getAttribute("aria-expanded");
    const isFocused = tree.contains(document.activeElement);
    const moves = { ArrowDown: isFocused ? index + 1 : index, ArrowUp: index - 1, Home: 0, End: items.length - 1 };
    if (key in moves) focusItem(items[moves[key]], true);
    else if (key === "ArrowRight" && expanded === "false") toggle(current, false);
    else if (key === "ArrowRight") focusItem(item.querySelector("[role=treeitem]"), true);
    else if (key === "ArrowLeft" && expanded === "true") toggle(current, true);
    else if (key === "ArrowLeft") focusItem(item.parentElement.closest("[role=treeitem]"), true);
    else if (key === "Enter" && item.dataset.href) location.hash = item.dataset.href;
    else return false;
    return true;
  }

  const load = coalesce(async () => {
    root = await read(["object", "cluster", namespace, name]);
    draw();
  }, PAUSE);
  const key = `cluster/${namespace}/${name}`;
  const update = ({ whole, touched }) => {
    if (whole || touched.has(key)) load();
  };
  load();
  return { title: name, node, head, press, update, back: "#/clusters" };
}
