// The form of the composer: a table of fields, each bound to a path of the request.

import { bdi, fill, h } from "./dom.js";
import { languageName } from "./format.js";
import { readMessage, texts } from "./message.js";
import { names } from "./placeholders.js";
import { toggle } from "./widgets.js";

/** Kind, path below the request, label, hint. */
const AUDIENCE = { push: [["ids", "userIds", "Users", "one per line"]] };
AUDIENCE.campaigns = [
  ["text", "name", "Name", "Spring sale"],
  ["text", "externalId", "External id", "your own id for it"],
  ["long", "segment.query", "Segment query", "SELECT user_id, first_name FROM users"],
  ["text", "segment.primaryKey", "Primary key", "user_id"],
  ["text", "schedule.type", "Schedule", "START_NOW"],
  ["number", "schedule.startTs", "Start timestamp", "with the schedule"],
];
const SECTIONS = [
  [
    "Tap",
    ["text", "message.iosActionUrl", "Opens on iPhone", "app://sale"],
    ["text", "message.androidActionUrl", "Opens on Android", "app://sale"],
    ["text", "message.action", "Action", "DEFAULT"],
    ["text", "message.actionCategory.name", "iPhone category", "its name"],
  ],
  [
    "Pictures",
    ["text", "message.bigImageUrl", "Large image", "https://…"],
    ["text", "message.largeIconUrl", "Large icon, Android", "https://…"],
    ["text", "message.richMediaUrl", "Rich media, iPhone", "https://…"],
    ["text", "message.mediaType", "Media type", "IMAGE"],
    ["text", "message.smallIconResourceId", "Small icon, Android", "ic_sale"],
  ],
  [
    "How it arrives",
    ["text", "message.collapseId", "Collapse id", "replaces an earlier push"],
    ["number", "message.ttl", "Time to live", "3600"],
    ["number", "message.badgeCount", "Badge", "1"],
    ["text", "message.priority", "Priority", "NORMAL"],
    ["text", "message.interruptionLevel", "Interruption level", "PASSIVE"],
    ["text", "message.relevanceScore", "Relevance score", "SCORE_MAX"],
    ["text", "message.soundFileName", "Sound", "ping.caf"],
    ["text", "message.androidChannel", "Android channel", "offers"],
    ["flag", "message.contentAvailable", "Content available: wakes the app"],
  ],
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
    const sections = SECTIONS.map(([title, ...rows]) => this.section(title, rows));
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
      languages.length > 1 ? h("div", { class: "row end" }, remove) : null,
    );
  }

  removeLanguage(language) {
    for (const name of ["title", "subtitle", "body"]) this.set(["message", name, language], undefined);
    this.show(this.body, this.kind, null);
    this.events.language(this.language);
    this.events.edited();
  }

  /** The values of a push's placeholders, its custom fields. A campaign has none. */
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
    const value = this.get(keys);
    if (kind === "flag") {
      const control = toggle(label, value === true, (on) => this.change(keys, on || keys[1] !== "contentAvailable" ? on : undefined));
      return this.known(shown, control.root);
    }
    const tag = kind === "long" || kind === "ids" ? "textarea" : "input";
    const box = h(tag, { id, class: kind === "ids" || keys[0] === "segment" ? "mono" : null, type: tag === "input" ? "text" : null, rows: tag === "textarea" ? (kind === "ids" ? "2" : "3") : null, placeholder: hint, autocomplete: "off", spellcheck: "false", dir: "auto", inputmode: kind === "number" ? "numeric" : null });
    box.value = kind === "ids" && Array.isArray(value) ? value.map(String).join("\n") : value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);
    box.addEventListener("input", () => this.change(keys, read(kind, box.value)));
    this.known(shown, box);
    return h("div", { class: "field" }, h("label", { for: id }, bdi(label)), box);
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
    for (const key of keys.slice(0, -1)) {
      const parent = around.at(-1);
      if (!Object.hasOwn(parent, key) || parent[key] === null || typeof parent[key] !== "object") {
        if (value === undefined) return;
        define(parent, key, {});
      }
      around.push(parent[key]);
    }
    if (value !== undefined) return define(around.at(-1), keys.at(-1), value);
    for (let depth = keys.length - 1; depth >= 0; depth--) {
      delete around[depth][keys[depth]];
      if (depth === 0 || Object.keys(around[depth]).length || keys[depth - 1] === "message") return;
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
