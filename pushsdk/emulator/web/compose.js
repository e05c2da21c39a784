// The composer: a form, the JSON beside it, and the phones, over one text that is sent as it is shown.

import { advice } from "./advice.js";
import { ALL, call, get, inbox, send } from "./api.js";
import { service } from "./connect.js";
import { bdi, clipped, fill, h, toast } from "./dom.js";
import { Editor, parsed } from "./editor.js";
import { Form } from "./form.js";
import { FATES, fate, plain } from "./format.js";
import { icon } from "./icons.js";
import { isObject, readMessage } from "./message.js";
import { unsent } from "./phones.js";
import { Stage } from "./stage.js";
import { segmented } from "./widgets.js";

const CHECK = 250; // ms after the last key
const REFUSED = new Set(["near-name", "no-platform"]); // as in the command line, these need a second thought
const MESSAGE = {
  type: "MOBILE_PUSH",
  iosEnabled: true,
  androidEnabled: true,
  title: { en: "Hello {{ first_name | 'there' }}" },
  body: { en: "Your first push has arrived." },
};
const TEMPLATES = {
  push: { userIds: ["user-1"], message: MESSAGE },
  campaigns: {
    name: "Spring",
    externalId: "spring-1",
    segment: { query: "SELECT user_id, first_name FROM users", primaryKey: "user_id" },
    schedule: { type: "START_NOW" },
    message: MESSAGE,
  },
};

export class Compose {
  /** @param {{go: (hash: string) => void, choose: (inbox: string) => Promise<void>, label: (inbox: string) => string, list: object[]}} app */
  constructor(app) {
    this.app = app;
    this.kind = "push";
    this.source = null; // id of the request that is edited
    this.stage = new Stage(() => this.body && this.form.show(this.body, this.kind, this.stage.language));
    this.form = new Form({ edited: () => this.formed(), language: (language) => this.spoken(language) });
    this.editor = new Editor("JSON", (text) => this.typed(text));
    this.kinds = segmented("What to send", [["push", "Push"], ["campaigns", "Campaign"]], "push", (kind) => this.start(kind));
    this.inboxes = h("select", { class: "inbox-select", id: "compose-inbox", "aria-label": "Inbox to send into" });
    this.button = h("button", { type: "button", class: "button primary", onclick: () => this.send() });
    this.checks = h("div", { class: "checks", role: "status", "aria-label": "Checks" });
    this.result = h("div", { class: "result", role: "status", "aria-label": "Result" });
    this.title = h("h2", null);
    this.eyebrow = h("p", { class: "eyebrow" });
    this.root = h(
      "div",
      { class: "view compose" },
      h(
        "header",
        { class: "detail-head" },
        h("div", { class: "detail-titles" }, this.eyebrow, this.title, this.checks),
        this.result,
        h(
          "div",
          { class: "compose-send" },
          this.kinds.root,
          h("div", { class: "row" }, h("span", { class: "inbox-label", "aria-hidden": "true" }, "Into"), this.inboxes),
          h("button", { type: "button", class: "button ghost", onclick: () => this.start(this.kind) }, "Start over"),
          this.button,
        ),
      ),
      h(
        "div",
        { class: "compose-body" },
        h("section", { class: "compose-fields", tabindex: "0", "aria-label": "Fields" }, this.form.root),
        h(
          "section",
          { class: "compose-json", tabindex: "0", "aria-label": "Request" },
          h("h3", null, "JSON"),
          this.editor.root,
        ),
        this.stage.root,
      ),
    );
    this.root.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      if (!event.repeat) this.send(); // a held key sends once
    });
  }

  /** @param {string | undefined} id of the request to edit */
  async show(id) {
    this.drawInboxes();
    if (id !== undefined && !inbox()) return; // called again once there is one
    if (id === undefined ? this.text !== undefined : id === this.source) return;
    this.source = id ?? null;
    if (id === undefined) return this.start("push");
    this.root.inert = true; // an edit of the text before would be lost
    try {
      const request = await get(`/requests/${id}`);
      this.kind = request.endpoint;
      this.from = request;
      this.drawInboxes(request.inbox);
      const { value } = parsed(request.text);
      this.load(value ? JSON.stringify(value, null, 2) : request.text);
    } catch (error) {
      toast(error.status === 404 ? "The push to edit is not there any more" : error.message, "error");
      this.start("push");
    } finally {
      this.root.inert = false;
    }
  }

  /** Begin with a template. */
  start(kind) {
    this.kind = kind;
    this.source = null;
    this.from = null;
    if (location.hash.startsWith("#/compose/")) history.replaceState(null, "", "#/compose");
    this.load(JSON.stringify(TEMPLATES[kind], null, 2));
  }

  load(text) {
    this.editor.text = text;
    fill(this.result);
    this.kinds.choose(this.kind);
    fill(this.eyebrow, this.from ? `A copy of ${this.from.endpoint === "campaigns" ? "campaign" : "push"} ${this.from.id}` : "A new request");
    fill(this.title, this.from ? "Edit and send" : "Compose");
    this.typed(text);
  }

  drawInboxes(wanted = this.inboxes.value) {
    const { list } = this.app;
    const chosen = wanted || (inbox() === ALL ? service.inbox : inbox()) || "";
    fill(
      this.inboxes,
      list.map((one) => h("option", { value: one.inbox, selected: one.inbox === chosen }, one.label)),
    );
  }

  /** Take an edit of the JSON. */
  typed(text) {
    this.text = text;
    const { value, trouble } = parsed(text);
    this.editor.mark(trouble);
    this.body = value;
    this.form.root.inert = value === undefined; // its last state stays in sight
    if (value !== undefined) {
      this.form.show(value, this.kind, this.stage.language);
      this.draw();
    }
    this.check(trouble);
  }

  /** Take an edit of the form. */
  formed() {
    this.text = JSON.stringify(this.body, null, 2);
    this.editor.text = this.text;
    this.draw();
    this.check();
  }

  /** Show the language that the form shows. */
  spoken(language) {
    this.stage.language = language;
    this.draw();
  }

  draw() {
    const message = readMessage(this.body);
    const given = isObject(this.body.customFields) ? this.body.customFields : {};
    const values = Object.create(null); // names may be anything
    for (const [name, value] of Object.entries(given)) if (value !== null) values[name] = plain(value);
    this.stage.show(message, { values, time: Date.now() / 1000, instead: unsent(message), still: true });
  }

  /** Ask the linter, once the typing pauses. */
  check(trouble = "") {
    clearTimeout(this.timer);
    this.button.disabled = this.body === undefined;
    this.timer = setTimeout(() => this.lint(), CHECK);
    if (trouble) this.report([{ path: "$", code: "json", message: trouble }]);
  }

  async lint() {
    const { body, text } = this;
    if (body === undefined) return;
    try {
      const { error, lint } = await call("POST", "/lint", { query: { inbox: "" }, text: `{"endpoint":"${this.kind}","body":${text}}` });
      if (text !== this.text) return;
      const [, what, path] = /^([^]*) - at `([^]*)`$/.exec(error ?? "") ?? [null, error, "$"];
      this.report([...(error ? [{ path, code: "refused", message: `The service would refuse this: ${what}` }] : []), ...lint]);
    } catch (error) {
      this.report([{ path: "$", code: "unchecked", message: error.message }]);
    }
  }

  report(problems) {
    const doubtful = problems.some((one) => REFUSED.has(one.code) || one.code === "refused");
    fill(this.checks, advice(problems, (problem) => this.focus(problem)) ?? h("p", { class: "fine" }, icon("check"), "No advice"));
    fill(this.button, icon("send"), doubtful ? "Send anyway" : "Send", h("kbd", { "aria-hidden": "true" }, "Ctrl ↵"));
    this.form.mark(new Set(problems.map((one) => one.path)));
  }

  /** Show the field of a problem, in the form or else in the JSON. */
  focus(problem) {
    if (this.body !== undefined && this.form.focus(problem)) return;
    const { area } = this.editor;
    const name = JSON.stringify(problem.path.split(".").at(-1));
    const at = area.value.indexOf(name);
    area.focus();
    if (at >= 0) area.setSelectionRange(at, at + name.length);
  }

  async send() {
    if (this.body === undefined || this.sending) return;
    this.sending = true;
    this.button.disabled = true;
    fill(this.result, h("p", { class: "quiet" }, "Sending…"));
    try {
      const into = this.inboxes.value;
      const result = await send(this.text, { inbox: into, endpoint: this.kind });
      await this.app.look();
      this.drawInboxes(into);
      this.answered(result, this.inboxes.value);
    } catch (error) {
      fill(this.result, h("p", { class: "trouble" }, icon("alert"), bdi(error.message)));
    }
    this.result.scrollIntoView({ block: "nearest" }); // the button of a narrow page is far from the result
    this.sending = false;
    this.button.disabled = this.body === undefined;
  }

  answered({ id, status, accepted, body }, into) {
    const kind = fate({ status, accepted });
    const open = h("a", { href: `#/pushes/${id}` }, `Open ${this.kind === "push" ? "push" : "campaign"} ${id}`);
    open.addEventListener("click", (event) => {
      if (inbox() === into || inbox() === ALL) return;
      event.preventDefault();
      this.app.choose(into).then(() => this.app.go(`#/pushes/${id}`));
    });
    fill(
      this.result,
      h("div", { class: `stamp ${kind}` }, h("b", null, FATES[kind].word), h("span", null, status ?? "no status")),
      h("div", null, id ? h("p", null, open) : null, kind === "accepted" ? null : h("p", { class: "trouble" }, clipped(said(body) || `It was ${FATES[kind].says}`, 300, "Response"))),
    );
  }
}

/** The error text of a response, or its body. */
function said(body) {
  const { value } = parsed(body || "{}");
  return typeof value?.error === "string" ? value.error : body;
}
