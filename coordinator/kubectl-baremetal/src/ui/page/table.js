// A table of any length: the document has only the visible rows.

import { el, setText } from "./dom.js";

const ROW_HEIGHT = 36;
const OVERSCAN = 8;

/**
 * `columns`: `{ title, fill(cell, line) }`. `rows()` returns the lines in their order,
 * `open(line)` is called for a chosen line.
 */
export function createTable({ label, columns, rows, open }) {
  const space = el("div", { class: "space", role: "rowgroup" });
  const body = el("div", { class: "rows" }, space);
  const header = columns.map(({ title }) => el("span", { role: "columnheader" }, title));
  const grid = el(
    "div",
    { class: "table", role: "grid", tabindex: "0", "aria-label": label, "aria-colcount": columns.length },
    el("div", { role: "rowgroup" }, el("div", { class: "row head", role: "row", "aria-rowindex": 1 }, header)),
    body,
  );
  const pool = [];
  let selected = null;
  let scheduled = false;

  function addRow() {
    const cells = columns.map(() => el("span", { role: "gridcell" }));
    const row = el("div", { class: "row", role: "row", id: `row-${pool.length}` }, cells);
    row.addEventListener("click", (event) => {
      if (!event.target.closest("a, button")) open(row.line);
    });
    pool.push({ row, cells });
    space.append(row);
  }

  function fill({ row, cells }, line, index) {
    row.style.transform = `translateY(${index * ROW_HEIGHT}px)`;
    row.setAttribute("aria-rowindex", index + 2);
    row.setAttribute("aria-selected", line.key === selected);
    row.dataset.attention = line.attention;
    if (row.line === line) return;
    // Only a row that shows the same host again has changed.
    row.classList.toggle("changed", row.line?.key === line.key);
    row.line = line;
    row.dataset.key = line.key;
    columns.forEach((column, position) => column.fill(cells[position], line));
  }

  function draw() {
    scheduled = false;
    const lines = rows();
    const height = `${lines.length * ROW_HEIGHT}px`;
    if (space.style.height !== height) space.style.height = height;
    grid.setAttribute("aria-rowcount", lines.length + 1);
    const first = Math.max(0, Math.floor(body.scrollTop / ROW_HEIGHT) - OVERSCAN);
    const count = Math.ceil(body.clientHeight / ROW_HEIGHT) + 2 * OVERSCAN;
    const shown = lines.slice(first, first + count);
    while (pool.length < shown.length) addRow();
    let active = null;
    pool.forEach((slot, position) => {
      const line = shown[position];
      slot.row.hidden = !line;
      if (!line) {
        slot.row.setAttribute("aria-selected", "false");
        return;
      }
      fill(slot, line, first + position);
      if (line.key === selected) active = slot.row.id;
    });
    if (active) grid.setAttribute("aria-activedescendant", active);
    else grid.removeAttribute("aria-activedescendant");
  }

  /** Draws once before the next frame. */
  function refresh() {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(draw);
  }

  function select(index) {
    const lines = rows();
    const bounded = Math.min(Math.max(index, 0), lines.length - 1);
    selected = lines[bounded]?.key ?? null;
    const top = bounded * ROW_HEIGHT;
    if (top < body.scrollTop) body.scrollTop = top;
    const bottom = top + ROW_HEIGHT - body.clientHeight;
    if (bottom > body.scrollTop) body.scrollTop = bottom;
    refresh();
  }

  /** Handles a key; `false` if the table does not use the key. */
  function press(key) {
    const lines = rows();
    const index = lines.findIndex((line) => line.key === selected);
    const page = Math.max(1, Math.floor(body.clientHeight / ROW_HEIGHT) - 1);
    const moves = {
      ArrowDown: index + 1,
      ArrowUp: Math.max(index - 1, 0),
      PageDown: index + page,
      PageUp: index - page,
      Home: 0,
      End: lines.length - 1,
    };
    if (key in moves) select(moves[key]);
    else if (key === "Enter" && index >= 0) open(lines[index]);
    else return false;
    return true;
  }

  grid.addEventListener("keydown", (event) => {
    if (event.target === grid && press(event.key)) event.preventDefault();
  });
  body.addEventListener("scroll", refresh, { passive: true });
  const resized = new ResizeObserver(refresh);
  resized.observe(body);
  return { node: grid, refresh, press, select, close: () => resized.disconnect() };
}

export function textColumn(title, text) {
  const fill = (cell, line) => {
    const shown = text(line) || "–";
    setText(cell, shown);
    cell.title = shown;
  };
  return { title, fill };
}
