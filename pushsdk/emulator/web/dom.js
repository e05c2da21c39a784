// Elements from data. Text always becomes a text node: nothing in the page parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Make an element. Functions become listeners, `true` an empty attribute, null and false none.
 * @param {string} tag
 * @param {Record<string, unknown> | null} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/** Make an SVG element, as `h` does for HTML. */
export function s(tag, attributes, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, checked(name, value === true ? "" : String(value)));
  }
  add(element, children);
  return element;
}

// The last line of defense: other kinds of addresses never get into the page.
function checked(name, value) {
  if ((name === "href" || name === "src") && !/^(#|https?:|\/docs(\/[\w-]+)?$|[\w-]+\.(svg|js|css)$|\?)/i.test(value)) {
    throw new TypeError(`${name} must be an http(s) address`);
  }
  return value;
}

/** Append children; arrays are flattened, null and false omitted. */
export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Replace all children. */
export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/** Foreign text, isolated so that it can't change the direction of the text around. */
export function bdi(text, className) {
  return h("bdi", { class: className, dir: "auto" }, text);
}

/** A mark on everything that the interface does not define and the emulator simulates. */
export function simulated(why = "The interface does not define this; the emulator simulates it.") {
  return h("span", { class: "sim", title: why }, "simulated");
}

/** Show a short message; errors stay longer. */
export function toast(text, kind = "info") {
  const box = document.getElementById("toasts");
  const note = h("p", { class: `toast ${kind}` }, bdi(text));
  box.append(note);
  setTimeout(() => note.remove(), kind === "error" ? 8000 : 2500);
}

/** Ask for confirmation of a deletion. @returns {Promise<boolean>} */
export function confirmed(question, verb) {
  return new Promise((resolve) => {
    const cancel = h("button", { type: "button", class: "button", autofocus: true }, "Cancel");
    const go = h("button", { type: "button", class: "button danger" }, verb);
    const box = dialog("Are you sure?", h("p", null, question), h("div", { class: "row end" }, cancel, go));
    let answer = false;
    cancel.addEventListener("click", () => box.close());
    go.addEventListener("click", () => {
      answer = true;
      box.close();
    });
    box.addEventListener("close", () => resolve(answer));
  });
}

/** Open a modal dialog; it removes itself when it closes. */
export function dialog(title, ...content) {
  const close = h("button", { type: "button", class: "button small" }, "Close");
  const box = h(
    "dialog",
    { class: "dialog", "aria-label": title },
    h("header", { class: "dialog-head" }, h("h2", null, title), close),
    content,
  );
  close.addEventListener("click", () => box.close());
  box.addEventListener("click", (event) => event.target === box && box.close());
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

/** Possibly very long text: cut, with a button for the rest. */
export function clipped(text, length, title = "Full text") {
  if (text.length <= length) return bdi(text);
  const more = h("button", { type: "button", class: "more", "aria-label": `${title}: show all` }, "show all");
  more.addEventListener("click", () => dialog(title, h("pre", { class: "full", dir: "auto", tabindex: "0" }, text)));
  return h("span", null, bdi(`${text.slice(0, length)}…`), " ", more);
}

/** Copy text, also where the page has no clipboard (plain http on another host). */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "offscreen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast(`${what} copied`);
}
