// A text field for JSON, colored by a copy behind its text.

import { fill, h } from "./dom.js";

const TOKEN = /"(?:[^"\\\n]|\\.)*"(?=(\s*:)?)|-?\d[\d.eE+-]*|\b(?:true|false|null)\b/g;
const LONGEST = 40_000; // characters that are colored

export class Editor {
  /** @param {string} label @param {(text: string) => void} edited */
  constructor(label, edited) {
    this.colors = h("pre", { "aria-hidden": "true" });
    this.area = h("textarea", { "aria-label": label, spellcheck: "false", autocomplete: "off", autocapitalize: "off", dir: "ltr", wrap: "soft" });
    this.area.addEventListener("input", () => {
      this.paint();
      edited(this.area.value);
    });
    this.root = h("div", { class: "editor" }, h("div", { class: "editor-paper" }, this.colors, this.area));
  }

  get text() {
    return this.area.value;
  }

  set text(text) {
    if (text !== this.area.value) this.area.value = text;
    this.paint();
  }

  /** Mark the text as invalid, or as valid with "". */
  mark(trouble) {
    this.root.classList.toggle("wrong", trouble !== "");
    this.area.setAttribute("aria-invalid", String(trouble !== ""));
  }

  paint() {
    const { value } = this.area;
    fill(this.colors, value.length > LONGEST ? value : colored(value), "\n"); // the end of a last line that is empty
  }
}

/** JSON as nodes, its tokens marked by kind. */
export function colored(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    const [token, colon] = match;
    const kind = token[0] === '"' ? (colon === undefined ? "string" : "key") : /^[tfn]/.test(token) ? "boolean" : "number";
    nodes.push(text.slice(end, match.index), h("span", { class: kind }, token));
    end = match.index + token.length;
  }
  return [...nodes, text.slice(end)];
}

/** A number that this browser can't hold stays as it is written, if the browser can do that. */
function exact(_name, value, context) {
  return typeof value === "number" && context && JSON.rawJSON && String(value) !== context.source ? JSON.rawJSON(context.source) : value;
}

/** The value of a text, or why and where the text is no JSON object. @returns {{value?: object, trouble: string}} */
export function parsed(text) {
  try {
    const value = JSON.parse(text, exact);
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return { value, trouble: "" };
    return { trouble: "The JSON must be an object: { … }" };
  } catch (error) {
    // Browsers quote the text, and not all of them say where.
    const what = error.message.replace(/(, ("|\.\.\.)[^]*is not valid JSON| in JSON at position[^]*)$/, "");
    const [, place] = /position (\d+)/.exec(error.message) ?? [];
    if (place === undefined) return { trouble: `No JSON: ${what}` };
    const lines = text.slice(0, Number(place)).split("\n");
    return { trouble: `Line ${lines.length}, column ${lines.at(-1).length + 1}: ${what}` };
  }
}
