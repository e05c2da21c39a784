// The form of the composer: a table of fields, each bound to a path of the request.

import { bdi, fill, h } from "./dom.js";
import { languageName } from "./format.js";
import { icon } from "./icons.js";
import { isObject, readMessage, texts } from "./message.js";
import { names } from "./placeholders.js";
import { toggle } from "./widgets.js";

/** Kind, path below the request, label, hint or the only value that the interface shows. */
const AUDIENCE = { push: [["ids", "userIds", "Users", "one per line"]] };
AUDIENCE.campaigns = [
  ["text", "name", "Name", "Spring sale"],
  ["text", "externalId", "External id", "your own id for it"],
  ["long", "segment.query", "Segment query", "SELECT user_id, first_name FROM users"],
  ["text", "segment.primaryKey", "Primary key", "user_id"],
  ["value", "schedule.type", "Schedule", "START_NOW"],
  ["number", "schedule.startTs", "Start timestamp", "with the schedule"],
];
const SECTIONS = [
  [
    "Tap and buttons",
    ["text", "message.iosActionUrl", "Opens on iPhone", "app://sale"],
    ["text", "message.androidActionUrl", "Opens on Android", "app://sale"],
    ["value", "message.action", "Action", "DEFAULT"],
    ["rows", "message.androidActionButtons", "Android buttons", ["label", "url"]],
    ["text", "message.actionCategory.name", "iPhone category", "its name"],
    ["rows", "message.actionCategory.actionComponents", "iPhone actions", ["actionId", "url"]],
  ],
  [
    "Pictures",
    ["text", "message.bigImageUrl", "Large image", "https://…"],
    ["text", "message.largeIconUrl", "Large icon, Android", "https://…"],
    ["text", "message.richMediaUrl", "Rich media, iPhone", "https://…"],
    ["value", "message.mediaType", "Media type", "IMAGE"],
    ["text", "message.smallIconResourceId", "Small icon, Android", "ic_sale"],
  ],
  [
    "How it arrives",
    ["text", "message.collapseId", "Collapse id", "replaces an earlier push"],
    ["number", "message.ttl", "Time to live", "3600"],
    ["number", "message.badgeCount", "Badge", "1"],
    ["value", "message.priority", "Priority", "NORMAL"],
    ["value", "message.interruptionLevel", "Interruption level", "PASSIVE"],
    ["value", "message.relevanceScore", "Relevance score", "SCORE_MAX"],
    ["text", "message.soundFileName", "Sound", "ping.caf"],
    ["text", "message.androidChannel", "Android channel", "offers"],
    ["flag", "message.contentAvailable", "Content available: wakes the app"],
  ],
  ["Data", ["pairs", "message.keyVals", "Key-values for the app", "key"], ["pairs", "customFields", "Custom fields", "name"]],
];
const LANGUAGES = ["en", "de", "fr", "es", "it", "pt", "nl", "pl", "tr", "ar", "he", "ja", "zh"];

let counter = 0;

export class Form {
  /** @param {{edited: () => void, language: (language: string) => void}} events */
  constructor(events) {
    this.events = events;
    this.open = new Set(); // titles of the open sections
    this.fields = new Map(); // path in the notation of the linter -> its control
    this.root = h("form", { class: "compose-form", "aria-label": "Form", onsubmit: (event) => event.preventDefault() });
  }

  /** @param {object} body changed in place @param {"push" | "campaigns"} kind @param {string} language */
  show(body, kind, language) {
    Object.assign(this, { body, kind, language });
    this.fields.clear();
    const sections = SECTIONS.map(([title, ...rows]) => this.section(title, rows.filter(([, path]) => kind === "push" || path !== "customFields")));
    this.values = h("div", { class: "fieldset", hidden: true });
    fill(this.root, h("div", { class: "fieldset" }, AUDIENCE[kind].map((row) => this.field(row))), this.platforms(), this.texts(), this.values, sections);
    this.drawValues();
  }

  section(title, rows) {
    const used = rows.filter(([, path]) => this.get(path) !== undefined).length;
    const box = h("details", { class: "form-section", open: this.open.has(title) }, h("summary", null, title, used ? h("span", { class: "count" }, ` ${used} set`) : null), h("div", { class: "fieldset" }, rows.map((row) => this.field(row))));
    box.addEventListener("toggle", () => (box.open ? this.open.add(title) : this.open.delete(title)));
    return box;
  }

  platforms() {
    const one = (path, label) => this.field(["flag", path, label]);
    return h("div", { class: "platforms", role: "group", "aria-label": "Platforms", "data-path": "$.message" }, one("message.iosEnabled", "iPhone"), one("message.androidEnabled", "Android"));
  }

  texts() {
    const { languages } = readMessage(this.body);
    const chosen = languages.includes(this.language) ? this.language : (languages[0] ?? "en");
    this.language = chosen;
    const all = languages.length ? languages : ["en"];
    const choose = (language) => {
      this.events.language(language);
      this.show(this.body, this.kind, language);
    };
    const press = (language) =>
      h("button", { type: "button", "aria-pressed": String(language === chosen), title: languageName(language).slice(0, 60), onclick: () => choose(language) }, bdi(language.slice(0, 24)));
    const known = LANGUAGES.filter((one) => !languages.includes(one));
    const more = h("select", { class: "add-language", "aria-label": "Add a language" }, h("option", { value: "" }, "+ language"), known.map((one) => h("option", { value: one }, `${one} · ${languageName(one)}`)));
    more.addEventListener("change", () => {
      this.set(["message", "title", more.value], "");
      choose(more.value);
      this.events.edited();
      this.fields.get(`$.message.title.${this.language}`).focus();
    });
    const remove = h("button", { type: "button", class: "button small ghost", onclick: () => this.removeLanguage(chosen) }, `Remove ${chosen.slice(0, 24)}`);
    const suffix = ` (${chosen.slice(0, 24)})`;
    return h(
      "div",
      { class: "fieldset texts" },
      h("div", { class: "row" }, h("div", { class: "segmented", role: "group", "aria-label": "Language of the texts" }, all.map(press)), more),
      this.field(["text", ["message", "title", chosen], `Title${suffix}`, "Hello {{ first_name | 'there' }}"]),
      this.field(["text", ["message", "subtitle", chosen], `Subtitle${suffix}`, ""]),
      this.field(["long", ["message", "body", chosen], `Body${suffix}`, ""]),
      h("div", { class: "row end" }, languages.length > 1 ? remove : null, h("button", { type: "button", class: "button small", onclick: () => this.insertPlaceholder() }, icon("plus"), "Placeholder")),
    );
  }

  removeLanguage(language) {
    for (const name of ["title", "subtitle", "body"]) this.set(["message", name, language], undefined);
    this.show(this.body, this.kind, null);
    this.events.language(this.language);
    this.events.edited();
  }

  /** Insert a placeholder at the cursor of the text that was edited last. */
  insertPlaceholder() {
    const box = this.lastText?.isConnected ? this.lastText : this.fields.get(`$.message.title.${this.language}`);
    box.setRangeText("{{ first_name | 'there' }}", box.selectionStart, box.selectionEnd, "end");
    box.dispatchEvent(new Event("input"));
    box.focus();
  }

  /** The values of the placeholders: custom fields of a push; of a campaign, the rows of its segment are. */
  drawValues() {
    const found = this.kind === "push" ? [...names(texts(readMessage(this.body)))].slice(0, 30) : [];
    const key = JSON.stringify(found.map(([name, fallbacks]) => [name, ...fallbacks]));
    if (key === this.values.dataset.key) return;
    this.values.dataset.key = key;
    this.values.hidden = !found.length;
    fill(
      this.values,
      h("h3", null, "Placeholders"),
      found.map(([name, fallbacks]) => this.field(["text", ["customFields", name], name.slice(0, 80), [...fallbacks].join(" / ").slice(0, 200)])),
    );
  }

  // Controls

  field([kind, path, label, hint]) {
    const keys = Array.isArray(path) ? path : path.split(".");
    const id = `field-${++counter}`;
    const shown = `$${keys.map((key) => `.${key}`).join("")}`;
    if (kind === "rows") return this.rows(keys, label, hint);
    if (kind === "pairs") return this.pairs(keys, label, hint);
    const value = this.get(keys);
    if (kind === "flag") {
      const control = toggle(label, value === true, (on) => this.change(keys, on || keys[1] !== "contentAvailable" ? on : undefined));
      return this.known(shown, control.root);
    }
    const tag = kind === "long" || kind === "ids" ? "textarea" : "input";
    const box = h(tag, { id, class: kind === "ids" || keys[0] === "segment" ? "mono" : null, type: tag === "input" ? "text" : null, rows: tag === "textarea" ? (kind === "ids" ? "2" : "3") : null, placeholder: hint, autocomplete: "off", spellcheck: "false", dir: "auto", inputmode: kind === "number" ? "numeric" : null });
    box.value = kind === "ids" && Array.isArray(value) ? value.map(String).join("\n") : value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);
    box.addEventListener("input", () => this.change(keys, read(kind, box.value)));
    if (keys[1] === "title" || keys[1] === "subtitle" || keys[1] === "body") box.addEventListener("focus", () => (this.lastText = box));
    this.known(shown, box);
    const use = kind === "value" && value === undefined ? h("button", { type: "button", class: "more", onclick: () => this.use(box, hint) }, `use ${hint}`) : null;
    return h("div", { class: "field" }, h("div", { class: "row spread" }, h("label", { for: id }, bdi(label)), use), box);
  }

  use(box, value) {
    box.value = value;
    box.dispatchEvent(new Event("input"));
    box.focus();
  }

  /** A list of objects, each with two texts. */
  rows(keys, label, columns) {
    const list = this.get(keys);
    const items = Array.isArray(list) ? list : [];
    const add = () => {
      const index = items.length;
      this.set([...keys, index], {});
      this.again(`$.${keys.join(".")}[${index}].${columns[0]}`);
    };
    return h(
      "fieldset",
      null,
      h("legend", null, label),
      items.map((item, index) =>
        h(
          "div",
          { class: "row pair" },
          columns.map((column) => {
            const at = [...keys, index, column];
            const box = h("input", { type: "text", "aria-label": `${label} ${index + 1}: ${column}`, placeholder: column, autocomplete: "off", dir: "auto" });
            box.value = isObject(item) && item[column] !== undefined ? String(item[column]) : "";
            box.addEventListener("input", () => this.change(at, box.value === "" ? undefined : box.value));
            return this.known(`$.${keys.join(".")}[${index}].${column}`, box);
          }),
          this.remover(`${label} ${index + 1}`, () => {
            items.splice(index, 1);
            if (!items.length) this.set(keys, undefined);
          }),
        ),
      ),
      h("button", { type: "button", class: "button small", onclick: add }, icon("plus"), "Add"),
    );
  }

  /** A map of texts; other values are edited as JSON. */
  pairs(keys, label, hint) {
    const map = this.get(keys);
    const entries = isObject(map) ? Object.entries(map) : [];
    const add = () => {
      let name = hint;
      for (let index = 2; isObject(map) && Object.hasOwn(map, name); index++) name = `${hint}${index}`;
      this.set([...keys, name], "");
      this.again(null, `${label}: name ${entries.length + 1}`);
    };
    return h(
      "fieldset",
      null,
      h("legend", null, label),
      entries.map(([name, value], index) => {
        const key = h("input", { type: "text", "aria-label": `${label}: name ${index + 1}`, autocomplete: "off", dir: "auto" });
        const box = h("input", { type: "text", "aria-label": `${label}: value ${index + 1}`, autocomplete: "off", dir: "auto" });
        key.value = name;
        box.value = typeof value === "string" ? value : JSON.stringify(value);
        let current = name;
        key.addEventListener("input", () => {
          if (key.value === "" || Object.hasOwn(map, key.value)) return; // names differ
          const renamed = Object.entries(map).map(([one, content]) => [one === current ? key.value : one, content]);
          for (const one of Object.keys(map)) delete map[one];
          Object.assign(map, Object.fromEntries(renamed));
          current = key.value;
          this.events.edited();
        });
        box.addEventListener("input", () => {
          map[current] = box.value;
          this.events.edited();
        });
        return h("div", { class: "row pair" }, this.known(`$.${keys.join(".")}.${name}`, key), box, this.remover(`${label} ${index + 1}`, () => this.set([...keys, current], undefined)));
      }),
      h("button", { type: "button", class: "button small", onclick: add }, icon("plus"), "Add"),
    );
  }

  remover(label, remove) {
    const act = () => {
      remove();
      this.again();
    };
    return h("button", { type: "button", class: "button small ghost", "aria-label": `Remove ${label}`, onclick: act }, "Remove");
  }

  /** Draw the form again after a change of its rows, and focus a control. */
  again(path = null, label = null) {
    this.show(this.body, this.kind, this.language);
    this.events.edited();
    const control = path ? this.fields.get(path) : label ? this.root.querySelector(`[aria-label="${label}"]`) : null;
    control?.focus();
    if (label) control?.select();
  }

  known(path, control) {
    control.dataset.path = path;
    this.fields.set(path, control);
    return control;
  }

  // Values

  get(path) {
    const keys = Array.isArray(path) ? path : path.split(".");
    return keys.reduce((value, key) => (value !== null && typeof value === "object" && Object.hasOwn(value, key) ? value[key] : undefined), this.body);
  }

  /** Set a value, or remove it with undefined: then empty objects around it go as well, unless they are required. */
  set(path, value) {
    const keys = Array.isArray(path) ? path : path.split(".");
    const around = [this.body];
    for (const [index, key] of keys.slice(0, -1).entries()) {
      const parent = around.at(-1);
      if (!Object.hasOwn(parent, key) || parent[key] === null || typeof parent[key] !== "object") {
        if (value === undefined) return;
        define(parent, key, typeof keys[index + 1] === "number" ? [] : {});
      }
      around.push(parent[key]);
    }
    if (value !== undefined) return define(around.at(-1), keys.at(-1), value);
    for (let depth = keys.length - 1; depth >= 0; depth--) {
      delete around[depth][keys[depth]];
      if (depth === 0 || Array.isArray(around[depth]) || Object.keys(around[depth]).length || keys[depth - 1] === "message") return;
    }
  }

  change(keys, value) {
    this.set(keys, value);
    this.drawValues();
    this.events.edited();
  }

  /** Show the control of a problem. @returns {boolean} false if there is none */
  focus({ path, code }) {
    const at = code === "no-text" ? "$.message.title" : path;
    const control = this.fields.get(at) ?? this.fields.get(`${at}.${this.language}`) ?? (code === "no-platform" ? this.fields.get("$.message.iosEnabled") : null);
    control?.closest("details")?.setAttribute("open", "");
    control?.focus();
    return Boolean(control);
  }

  /** Mark the controls that a problem names. */
  mark(paths) {
    for (const [path, control] of this.fields) {
      if (paths.has(path)) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
    }
  }
}

// A name from the request may be __proto__.
function define(object, key, value) {
  Object.defineProperty(object, key, { value, writable: true, enumerable: true, configurable: true });
}

function read(kind, text) {
  if (kind === "ids") return text.split(/[\n,]/).map((one) => one.trim()).filter(Boolean);
  if (text === "") return undefined;
  return kind === "number" && /^-?\d{1,15}$/.test(text.trim()) ? Number(text) : text;
}
