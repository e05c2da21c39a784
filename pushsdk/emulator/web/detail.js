// The chosen push: its head with the stamp, the phones on their stage, the inspector beside them.

import { call, get } from "./api.js";
import { bdi, clipped, confirmed, copy, fill, h, simulated, toast } from "./dom.js";
import { FATES, clock, direction, fate, languageName, plural } from "./format.js";
import { icon } from "./icons.js";
import { inspector } from "./inspector.js";
import { hostOf, imagesOn, link } from "./links.js";
import { badge, enabled, readMessage, target, text, textOf, texts } from "./message.js";
import { phone, unsent } from "./phones.js";
import { names, rendered } from "./placeholders.js";
import { segmented } from "./widgets.js";

export class Detail {
  /** @param {{back: () => void, deleted: (id: number) => void}} events */
  constructor(events) {
    this.events = events;
    this.expanded = false; // kept for the next push, like the language
    this.language = null;
    this.tab = "overview";
    this.root = h("section", { class: "detail", "aria-label": "Chosen push" });
    this.id = null;
  }

  /** Show one request; the response for an earlier choice is ignored. */
  async show(id) {
    this.id = id;
    this.asked?.abort();
    this.asked = new AbortController();
    this.root.classList.add("waiting");
    try {
      const request = await get(`/requests/${id}`, {}, this.asked.signal);
      this.draw(request);
    } catch (error) {
      if (error.name !== "AbortError") this.failed(error);
    }
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
    const { languages } = this.message;
    if (!languages.includes(this.language)) this.language = languages.find((one) => /^en\b/.test(one)) ?? languages[0] ?? "en";
    this.root.classList.remove("waiting");
    this.head = h("header", { class: "detail-head" });
    this.stage = h("div", { class: "stage-screens" });
    this.side = inspector({
      request,
      message: this.message,
      values: this.values,
      tab: this.tab,
      switched: (tab) => (this.tab = tab),
      edited: () => this.redraw(),
    });
    fill(
      this.root,
      this.head,
      h("div", { class: "detail-body" }, h("div", { class: "stage" }, this.toolbar(), this.stage), this.side),
    );
    const why = request.accepted ? unsent(this.message) : refused(request);
    if (why) fill(this.stage.parentElement, why); // a push that reaches no phone is explained instead of drawn
    this.redraw(false);
  }

  /** Draw the parts that depend on the language, the view and the values. */
  redraw(still = true) {
    this.stage.classList.toggle("still", still); // animate a new push only
    this.drawHead();
    if (!this.stage.isConnected) return;
    const shown = { message: this.message, language: this.language, values: this.values, time: this.request.time };
    const open = () => this.toggle();
    const one = (platform) =>
      h(
        "figure",
        { class: "device" },
        phone(platform, shown, { expanded: this.expanded, open }),
        h("figcaption", null, effects(this.message, platform, this.language)),
      );
    fill(this.stage, one("ios"), one("android"));
  }

  toggle() {
    this.expanded = !this.expanded;
    this.viewSwitch.choose(this.expanded ? "expanded" : "lock");
    this.redraw();
  }

  nextLanguage() {
    const { languages } = this.message;
    if (languages.length < 2) return;
    this.language = languages[(languages.indexOf(this.language) + 1) % languages.length];
    this.languageSwitch.choose(this.language);
    this.redraw();
  }

  drawHead() {
    const { request } = this;
    const kind = fate(request);
    const title = rendered(textOf(this.message, "title", this.language), this.values);
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
          request.endpoint === "campaigns" ? h("a", { href: `#/campaigns/${request.campaign ?? ""}` }, "see its campaign") : plural(request.users, "user"),
        ),
        h("h2", { dir: direction(this.language) }, title === "" ? h("span", { class: "quiet" }, "No title") : clipped(title, 140, "Title")),
        request.accepted && request.fault ? trouble(request) : null,
      ),
      h("div", { class: `stamp ${kind}`, title: FATES[kind].says }, h("b", null, FATES[kind].word), h("span", null, request.status ?? "no status")),
      this.actions(),
    );
  }

  actions() {
    const { request } = this;
    const button = (label, name, act, extra = "") =>
      h("button", { type: "button", class: `button ${extra}`, onclick: act, title: label, "aria-label": label }, icon(name), h("span", { class: "button-text" }, label));
    return h(
      "div",
      { class: "actions" },
      request.curl ? button("Copy as curl", "copy", () => copy(request.curl, "curl")) : null,
      request.python ? button("Copy as Python", "copy", () => copy(request.python, "Python")) : null,
      button("Delete", "trash", () => this.remove(), "ghost"),
    );
  }

  async remove() {
    const { id } = this.request;
    if (!(await confirmed(`Delete request ${id} from this inbox? The counts per user stay.`, "Delete"))) return;
    try {
      await call("DELETE", `/requests/${id}`);
      toast("Deleted");
      this.events.deleted(id);
    } catch (error) {
      toast(error.message, "error");
    }
  }

  backButton() {
    return h("button", { type: "button", class: "icon-button back", "aria-label": "Back to the list", onclick: this.events.back }, icon("back"));
  }

  toolbar() {
    const { languages } = this.message;
    this.viewSwitch = segmented(
      "View",
      [["lock", "Lock screen"], ["expanded", "Expanded"]],
      this.expanded ? "expanded" : "lock",
      (view) => {
        this.expanded = view === "expanded";
        this.redraw();
      },
    );
    this.languageSwitch = segmented(
      "Language",
      languages.map((language) => [language, language.slice(0, 24), languageName(language).slice(0, 60)]),
      this.language,
      (language) => {
        this.language = language;
        this.redraw();
      },
    );
    const none = h("span", { class: "quiet" }, "no text in any language");
    return h("div", { class: "stage-bar" }, languages.length ? this.languageSwitch.root : none, this.viewSwitch.root);
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

/** The effects that a picture of a phone can't show: sound, badge, the target of a tap. */
function effects(message, platform, language) {
  const url = target(message, platform);
  const sound = text(message, "soundFileName");
  const count = badge(message);
  const row = (name, ...content) => h("li", null, icon(name), h("span", null, content));
  const picture = platform === "ios" ? text(message, "richMediaUrl") || text(message, "bigImageUrl") : text(message, "bigImageUrl") || text(message, "richMediaUrl");
  return [
    h("p", { class: "device-name" }, platform === "ios" ? "iPhone" : "Android", " ", simulated(), h("span", { class: "quiet", dir: "ltr" }, direction(language) === "rtl" ? "right to left" : "")),
    !enabled(message, platform) ? null : h(
      "ul",
      { class: "effects" },
      row("tap", "opens ", url ? link(url) : h("span", { class: "quiet" }, "the app")),
      sound ? row("sound", bdi(sound.slice(0, 120), "mono")) : null,
      count !== null ? row("bell", `badge ${count}`) : null,
      picture && !imagesOn ? row("image", "image of ", bdi(hostOf(picture)), " not loaded") : null,
    ),
  ];
}
