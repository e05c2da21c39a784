// JSON as a folding tree. Large values are cut when opened, so that no request can freeze the page.

import { bdi, clipped, h } from "./dom.js";

const MOST = 200; // entries of one level
const OPEN = 2; // levels that are open at first

/** @param {unknown} value */
export function tree(value) {
  return h("div", { class: "json", tabindex: "0", role: "region", "aria-label": "JSON of the request" }, node(value, null, 0));
}

function node(value, key, depth) {
  const name = key === null ? null : [h("span", { class: "key" }, bdi(shorten(JSON.stringify(key)))), ": "];
  if (value === null || typeof value !== "object") return h("div", { class: "leaf" }, name, leaf(value));
  const entries = Array.isArray(value) ? value.map((entry) => [null, entry]) : Object.entries(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return h("div", { class: "leaf" }, name, open, close);
  const inside = h("div", { class: "inside" });
  const summary = h(
    "summary",
    null,
    name,
    open,
    h("span", { class: "count" }, ` ${entries.length} ${Array.isArray(value) ? "entries" : "fields"} `),
    close,
  );
  const box = h("details", { open: depth < OPEN && entries.length <= 60 }, summary, inside);
  // Filled when first opened, because a body may have 16 MB.
  const grow = () => {
    if (box.open && !inside.childElementCount) more(inside, entries, 0, depth);
  };
  box.addEventListener("toggle", grow);
  grow();
  return box;
}

function more(inside, entries, from, depth) {
  inside.append(...entries.slice(from, from + MOST).map(([key, entry]) => node(entry, key, depth + 1)));
  const rest = entries.length - from - MOST;
  if (rest <= 0) return;
  const button = h("button", { type: "button", class: "more" }, `${rest} more`);
  button.addEventListener("click", () => {
    button.remove();
    more(inside, entries, from + MOST, depth);
  });
  inside.append(button);
}

function leaf(value) {
  const kind = value === null ? "null" : typeof value;
  const text = JSON.stringify(value);
  return h("span", { class: kind }, clipped(text, 600, "Value"));
}

const shorten = (text) => (text.length > 120 ? `${text.slice(0, 120)}…` : text);
