// The chosen push: its head with the stamp and the advice, the phones on their stage, the inspector beside them.

import { advice } from "./advice.js";
import { call, get, send } from "./api.js";
import { bdi, clipped, confirmed, fill, h, toast } from "./dom.js";
import { FATES, clock, direction, fate, number, plural } from "./format.js";
import { icon } from "./icons.js";
import { inspector } from "./inspector.js";
import { isObject, readMessage, textOf, texts } from "./message.js";
import { unsent } from "./phones.js";
import { names, rendered } from "./placeholders.js";
import { Stage } from "./stage.js";

const LONGEST = 200_000; // characters of a request that can be edited

export class Detail {
  /** @param {{back: () => void, deleted: (id: number) => void, sent: (id: number) => void, edit: (id: number) => void, drawn: (request: object) => void, group: (request: object) => void}} events */
  constructor(events) {
    this.events = events;
    this.tab = "overview"; // kept for the next push
    this.stage = new Stage(() => this.drawHead());
    this.root = h("section", { class: "detail", "aria-label": "Chosen push" });
    this.id = null;
  }

  /** Show one request; the response for an earlier choice is ignored. */
  async show(id) {
    this.id = id;
    this.asked?.abort();
    this.asked = new AbortController();
    this.root.classList.add("waiting");
    this.loading = get(`/requests/${id}`, {}, this.asked.signal);
    try {
      this.draw(await this.loading);
    } catch (error) {
      if (error.name !== "AbortError") this.failed(error);
    }
  }

  /** Return the chosen push once it is loaded, or null if it can't be: `show` says why. */
  chosen() {
    return this.loading.catch(() => null);
  }

  failed(error) {
    this.root.classList.remove("waiting");
    const gone = error.status === 404;
    fill(
      this.root,
      h("div", { class: "nothing" }, h("p", null, gone ? "This push is not there any more." : error.message), this.backButton()),
    );
  }

  /** Show the empty state. */
  empty(...content) {
    this.id = null;
    this.asked?.abort();
    this.root.classList.remove("waiting");
    fill(this.root, content);
  }

  draw(request) {
    this.request = request;
    this.message = readMessage(request.body);
    this.values = initialValues(request, this.message);
    this.root.classList.remove("waiting");
    this.head = h("header", { class: "detail-head" });
    this.groupRow = h("p", { class: "group-row", hidden: true });
    this.side = inspector({
      request,
      message: this.message,
      values: this.values,
      tab: this.tab,
      switched: (tab) => (this.tab = tab),
      edited: () => this.redraw(true),
    });
    fill(
      this.root,
      this.head,
      this.groupRow,
      h("div", { class: "detail-body" }, this.side, this.stage.root),
    );
    this.redraw(false);
    this.events.drawn(request);
  }

  /** Say that the list has one row for this push and others with the same texts. */
  showGroup(count) {
    if (this.id === null || !this.groupRow) return;
    this.groupRow.hidden = count < 2;
    fill(this.groupRow, icon("layers"), `One of ${plural(count, "push", "pushes")} with these texts.`, h("button", { type: "button", class: "button small", onclick: () => this.events.group(this.request) }, `Show the ${number(count)} pushes`));
  }

  /** Draw the parts that depend on the values; a push that reaches no phone is explained instead of drawn. */
  redraw(still) {
    const { request, message, values } = this;
    this.stage.show(message, { values, time: request.time, instead: request.accepted ? unsent(message) : refused(request), still });
    this.drawHead();
  }

  drawHead() {
    const { request } = this;
    const kind = fate(request);
    const { language } = this.stage;
    const title = rendered(textOf(this.message, "title", language), this.values);
    fill(
      this.head,
      this.backButton(),
      h(
        "div",
        { class: "detail-titles" },
        h(
          "p",
          { class: "eyebrow" },
          `${request.endpoint === "campaigns" ? "Campaign" : "Push"} ${request.id} · ${clock(request.time)} · `,
          request.endpoint === "campaigns" ? bdi(request.campaign ?? "no uuid", "mono") : plural(request.users, "user"),
        ),
        h("h2", { dir: direction(language) }, title === "" ? h("span", { class: "quiet" }, "No title") : clipped(title, 140, "Title")),
        request.accepted && request.fault ? trouble(request) : null,
        isObject(request.body) ? (advice(request.lint ?? []) ?? h("p", { class: "fine" }, icon("check"), "No advice")) : null,
      ),
      h("div", { class: `stamp ${kind}`, title: FATES[kind].says }, h("b", null, FATES[kind].word), h("span", null, request.status ?? "no status")),
      this.actions(),
    );
  }

  actions() {
    const { request } = this;
    const button = (label, name, act, extra = "", why = label) =>
      h("button", { type: "button", class: `button ${extra}`, onclick: act, title: why, disabled: why !== label }, icon(name), label);
    const { sendable, editable } = whole(request);
    return h(
      "div",
      { class: "actions" },
      button("Send again", "repeat", () => this.sendAgain(), "", sendable ? undefined : "The request is too large, or its bytes are no text"),
      button("Edit and send", "pen", () => this.edit(), "", editable ? undefined : "The request is too large to be edited here"),
      button("Delete", "trash", () => this.remove(), "ghost"),
    );
  }

  /** Send the same bytes into the same inbox. */
  async sendAgain() {
    const request = await this.chosen();
    if (!request || !whole(request).sendable) return;
    try {
      const result = await send(request.text, request);
      const kind = fate(result);
      toast(`Sent again: ${FATES[kind].word}, ${result.status ?? "no status"}`, kind === "accepted" ? "info" : "error");
      this.events.sent(result.id);
    } catch (error) {
      toast(error.message, "error");
    }
  }

  async edit() {
    const request = await this.chosen();
    if (request && whole(request).editable) this.events.edit(request.id);
  }

  async remove() {
    const { id, inbox } = (await this.chosen()) ?? {};
    if (id === undefined || !(await confirmed(`Delete request ${id} from this inbox? The counts per user stay.`, "Delete"))) return;
    try {
      await call("DELETE", `/requests/${id}`, { query: { inbox } });
      toast("Deleted");
      this.events.deleted(id);
    } catch (error) {
      toast(error.message, "error");
    }
  }

  backButton() {
    return h("button", { type: "button", class: "button small back", "aria-label": "Back to the list", onclick: this.events.back }, icon("back"), "Back");
  }
}

function refused(request) {
  const { word } = FATES[fate(request)];
  return h(
    "div",
    { class: "nothing" },
    icon("alert"),
    h("h2", null, request.status ? `${word} with ${request.status}` : word),
    trouble(request),
    h("p", null, `The service did not accept this ${request.endpoint === "campaigns" ? "campaign" : "push"}: no phone shows it.`),
  );
}

function trouble(request) {
  return h(
    "p",
    { class: "trouble" },
    icon("alert"),
    request.fault ? [h("span", null, "Fault rule "), bdi(request.fault, "mono"), request.error ? ": " : ""] : null,
    request.error ? clipped(request.error, 300, "Error") : null,
  );
}

// Custom fields are the only values in a push. That placeholders use them is simulated.
function initialValues(request, message) {
  const given = request.body?.customFields;
  const values = Object.create(null); // names come from the push and may be anything
  for (const name of names(texts(message)).keys()) {
    if (given && typeof given === "object" && Object.hasOwn(given, name) && given[name] !== null) values[name] = String(given[name]);
  }
  return values;
}

/** Whether the page has the whole body: it is cut if it is large, and bytes that are no UTF-8 can't be shown. */
function whole({ text, lint }) {
  const sendable = !lint.some((one) => one.code === "large") && !text.includes("\ufffd");
  return { sendable, editable: sendable && text.length <= LONGEST };
}
