// The view of the fault rules and the limits: set rules, see their hits.

import { call, get, inbox } from "./api.js";
import { Clock } from "./clock.js";
import { bdi, confirmed, fill, h, toast } from "./dom.js";
import { duration, number, plural } from "./format.js";
import { icon } from "./icons.js";
import { LimitsForm } from "./limits.js";

export class Faults {
  constructor(app) {
    this.app = app;
    this.rules = h("ol", { class: "rules" });
    this.presets = h("ul", { class: "presets" });
    this.limits = new LimitsForm();
    this.clock = new Clock();
    this.editor = h("textarea", { id: "rules-json", rows: "12", spellcheck: "false", dir: "ltr" });
    this.seed = h("input", { id: "rules-seed", type: "number", step: "1", value: "0", class: "short" });
    this.trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    this.hits = new Map(); // rule name -> its counter
    this.root = h("div", { class: "view page faults" }, this.layout());
  }

  layout() {
    return [
      h(
        "header",
        { class: "page-head" },
        h("h2", { class: "page-title" }, "Faults"),
        h("p", { class: "lead" }, "Make this service fail as real ones do. Rules are tried in order; delays add up, the first other rule that matches acts. The rules apply to this inbox only."),
      ),
      h(
        "div",
        { class: "columns" },
        h(
          "div",
          null,
          h("section", { class: "block" }, h("h3", null, "Presets"), this.presets),
          h(
            "section",
            { class: "block" },
            h("div", { class: "row spread" }, h("h3", null, "Rules"), h("button", { type: "button", class: "button small ghost", onclick: () => this.remove() }, icon("trash"), "Remove all")),
            this.rules,
          ),
          this.clock.root,
        ),
        h("div", null, this.json(), h("section", { class: "block" }, this.limits.root)),
      ),
    ];
  }

  json() {
    const apply = h("button", { type: "submit", class: "button primary" }, "Apply rules");
    return h(
      "section",
      { class: "block" },
      h("h3", null, "As JSON"),
      h(
        "form",
        {
          onsubmit: (event) => {
            event.preventDefault();
            this.apply();
          },
        },
        h("label", { class: "visually-hidden", for: "rules-json" }, "Rules as JSON"),
        this.editor,
        this.trouble,
        h("div", { class: "row spread" }, h("label", { class: "inline", for: "rules-seed" }, "Seed ", this.seed), apply),
      ),
    );
  }

  async show() {
    this.clock.load();
    if (inbox()) await Promise.all([this.refresh(true), this.limits.load()]); // called again once there is one
    await this.loadPresets();
  }

  async refresh(redraw = false) {
    if (!inbox()) return;
    try {
      const state = await get("/faults");
      const rules = state.faults;
      const key = JSON.stringify(rules.map(({ hits: _, ...rule }) => rule));
      if (redraw || key !== this.key) this.draw(rules, state);
      this.key = key;
      this.count(rules);
    } catch (error) {
      fill(this.rules, h("li", { class: "quiet" }, bdi(error.message)));
    }
  }

  draw(rules, state) {
    this.hits.clear();
    const sources = rules.map(ruleOf);
    this.rulesKey = same(sources);
    this.markPresets();
    if (document.activeElement !== this.editor) this.editor.value = JSON.stringify(sources, null, 2);
    if (Number.isInteger(state.seed)) this.seed.value = state.seed;
    fill(
      this.rules,
      rules.length ? null : h("li", { class: "calm" }, icon("check"), h("span", null, "No rule: every good request is accepted.")),
      rules.map((rule, index) => this.rule(rule, nameOf(rule, index))),
    );
  }

  rule(rule, name) {
    const counter = h("b", { class: "hits" }, "0");
    this.hits.set(name, counter);
    const source = ruleOf(rule);
    return h(
      "li",
      { class: "rule" },
      h("div", { class: "rule-text" }, h("p", { class: "rule-name" }, bdi(name.slice(0, 120), "mono")), h("p", null, effect(source)), h("p", { class: "quiet" }, condition(source))),
      h("p", { class: "rule-hits" }, counter, h("span", null, "hits")),
    );
  }

  count(rules) {
    rules.forEach((rule, index) => {
      const name = nameOf(rule, index);
      const hits = rule.hits ?? 0;
      const counter = this.hits.get(name);
      if (!counter || counter.textContent === number(hits)) return;
      fill(counter, number(hits));
    });
  }

  async loadPresets() {
    const answer = await get("/presets").catch(() => []);
    this.known = answer.map((one) => {
      const lines = Object.values(one.explained ?? {}).map((line) => h("li", null, line));
      const button = h("button", { type: "button", class: "preset", "aria-pressed": "false" }, h("b", null, one.name), h("span", null, one.about));
      button.addEventListener("click", () => this.press(one.name, button.getAttribute("aria-pressed") === "true"));
      return { key: same(one.faults), button, box: h("li", null, button, h("ul", null, lines)) };
    });
    fill(this.presets, this.known.map(({ box }) => box));
    this.markPresets();
  }

  press(name, on) {
    const body = on ? { faults: [] } : { preset: name, seed: Number(this.seed.value) || 0 };
    return this.change(() => call("PUT", "/faults", { body }), `${name} is ${on ? "off" : "on"}`).catch(() => {});
  }

  /** A preset is on while the inbox has exactly its rules. */
  markPresets() {
    for (const { key, button } of this.known ?? []) button.setAttribute("aria-pressed", String(key !== "[]" && key === this.rulesKey));
  }

  async apply() {
    let faults;
    try {
      faults = JSON.parse(this.editor.value);
    } catch (error) {
      return this.complain(`This is not JSON: ${error.message}`);
    }
    return this.change(() => call("PUT", "/faults", { body: { faults, seed: Number(this.seed.value) || 0 } }), "Rules applied").catch(() => {});
  }

  async remove() {
    if (await confirmed("Remove all fault rules of this inbox?", "Remove")) await this.change(() => call("PUT", "/faults", { body: { faults: [] } }), "Rules removed").catch(() => {});
  }

  async change(act, said) {
    try {
      await act();
    } catch (error) {
      this.complain(error.message);
      throw error;
    }
    this.trouble.hidden = true;
    if (said) toast(said);
    this.editor.blur();
    await this.refresh(said !== undefined);
  }

  complain(text) {
    this.trouble.hidden = false;
    fill(this.trouble, icon("alert"), bdi(text.slice(0, 500)));
  }
}

// Rules as comparable text: an omitted field equals null.
const same = (rules) => JSON.stringify(rules.map((rule) => Object.entries(rule).filter(([, value]) => value !== null).sort()));

const clipPlain = (text) => (text.length > 160 ? `${text.slice(0, 160)}…` : text);

// The fields that the server adds are not part of a rule.
function ruleOf(rule) {
  const { hits: _hits, name, ...rest } = rule;
  return name === undefined || /^\d+: \w+$/.test(name) ? rest : { name, ...rest };
}

const nameOf = (rule, index) => rule.name ?? `${index + 1}: ${rule.fault}`;

const EFFECTS = {
  status: (rule) => {
    const headers = Object.keys({ ...(rule.retry_after !== undefined && { "Retry-After": 0 }), ...rule.headers });
    return `Answers ${rule.code}${headers.length ? ` with ${headers.join(", ")}` : ""}`;
  },
  delay: (rule) => `Waits ${duration(rule.seconds)}`,
  reset_before: () => "Resets the connection before accepting",
  reset_after: () => "Accepts, then resets the connection",
  hang: (rule) => (rule.accepted ? "Accepts, then never responds" : "Never responds"),
  truncated: (rule) => `Accepts, then cuts the response in its ${rule.at ?? "headers"}`,
};

const effect = (rule) => (Object.hasOwn(EFFECTS, rule.fault) ? EFFECTS[rule.fault](rule) : String(rule.fault));

function condition(rule) {
  const words = [
    rule.endpoint ? `for ${rule.endpoint}` : "for every request",
    rule.user ? `to user ${clipPlain(rule.user)}` : "",
    rule.more_than_users !== undefined && rule.more_than_users !== null ? `of more than ${plural(rule.more_than_users, "user")}` : "",
    rule.more_than_bytes !== undefined && rule.more_than_bytes !== null ? `of more than ${number(rule.more_than_bytes)} bytes` : "",
    rule.first ? `the first ${number(rule.first)}` : "",
    rule.every ? `every ${number(rule.every)}${["", "st", "nd", "rd"][rule.every] ?? "th"}` : "",
    typeof rule.probability === "number" ? `with a chance of ${Math.round(rule.probability * 1000) / 10} %` : "",
  ];
  return words.filter(Boolean).join(", ");
}

