// The lines of hosts and other objects, as the program sends them.

export const hosts = new Map();
export const others = new Map();
export const status = { connection: "connecting", complete: false, notes: [], place: {} };

const listeners = new Set();

/**
 * `listener` gets `{ whole, changes: [{ before, after }], touched }`. With `isStatus`, only the status has
 * changed. Returns a function that ends the subscription.
 */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(change) {
  for (const listener of [...listeners]) listener(change);
}

const NOTHING = { whole: false, changes: [], touched: new Set(), isStatus: true };

function tellStatus(change) {
  Object.assign(status, change);
  tell(NOTHING);
}

function mapOf(key) {
  return key.startsWith("machineinventory/") ? hosts : others;
}

/** Adds the text that the filter searches. */
function prepare(line) {
  const { namespace, name, state, reason, pool, cluster, machine, image, addresses, plan } = line;
  const parts = [namespace, name, state, reason, pool, cluster, machine, image, plan, ...(addresses ?? [])];
  line.text = parts.filter(Boolean).join(" ").toLowerCase();
  return line;
}

function take({ changed, gone, touched }) {
  const changes = [];
  for (const line of changed) {
    const map = mapOf(line.key);
    changes.push({ before: map.get(line.key), after: prepare(line) });
    map.set(line.key, line);
  }
  for (const key of gone) {
    const before = mapOf(key).get(key);
    if (mapOf(key).delete(key)) changes.push({ before, after: undefined });
  }
  return { whole: false, changes, touched: new Set(touched) };
}

export function connect() {
  const source = new EventSource("live");
  // Keys of the lines at the start of the connection; `null` after `complete`.
  let listed = null;
  const on = (name, handle) => source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
  on("begin", (place) => {
    listed = new Set();
    tellStatus({ connection: "live", place });
  });
  on("lines", (lines) => {
    const change = take(lines);
    if (listed) for (const line of lines.changed) listed.add(line.key);
    else tell(change);
  });
  on("complete", () => {
    for (const map of [hosts, others]) {
      for (const key of map.keys()) if (!listed.has(key)) map.delete(key);
    }
    listed = null;
    status.complete = true;
    tell({ whole: true, changes: [], touched: new Set() });
  });
  on("notes", (notes) => tellStatus({ notes }));
  source.addEventListener("error", () => tellStatus({ connection: "lost" }));
}
