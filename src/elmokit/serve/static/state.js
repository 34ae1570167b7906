// What the address says: the view, its fields, the model and the language. Each view keeps its
// fields while another one is shown; the address has those of the view that is shown.

const SHARED = ["lang", "model"];
const fields = new Map(); // view: Map of its fields
const shared = new Map();
let view = "uses";

const ownFields = (name) => {
  if (!fields.has(name)) fields.set(name, new Map());
  return fields.get(name);
};

/** Read the address; return whether it names anything. */
export function readAddress() {
  const params = new URLSearchParams(location.hash.slice(1));
  view = params.get("view") ?? "uses";
  const own = ownFields(view);
  own.clear();
  for (const name of SHARED) shared.delete(name);
  for (const [name, value] of params) {
    if (SHARED.includes(name)) shared.set(name, value);
    else if (name !== "view") own.set(name, value);
  }
  return params.size > 0;
}

function write(push) {
  const params = new URLSearchParams({ view });
  for (const map of [shared, ownFields(view)]) {
    for (const [name, value] of map) params.set(name, value);
  }
  const address = `#${params}`;
  if (address !== location.hash) history[push ? "pushState" : "replaceState"](null, "", address);
}

export const currentView = () => view;

/** Show another view; the back button returns to this one. */
export function openView(name) {
  view = name;
  write(true);
}

/** A field of the view that is shown, or one that all views share. */
export function get(name, otherwise) {
  const map = SHARED.includes(name) ? shared : ownFields(view);
  return map.get(name) ?? otherwise;
}

/** Set fields; undefined removes one. */
export function set(values) {
  for (const [name, value] of Object.entries(values)) {
    const map = SHARED.includes(name) ? shared : ownFields(view);
    if (value === undefined) map.delete(name);
    else map.set(name, String(value));
  }
  write(false);
}
