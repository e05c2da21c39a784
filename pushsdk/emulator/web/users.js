// The view of the users: the counts of pushes with duplicates marked; the devices of the chosen user.

import { get, inbox, part } from "./api.js";
import { bdi, fill, h } from "./dom.js";
import { clock, number, plain, plural } from "./format.js";
import { icon } from "./icons.js";
import { readMessage, textOf } from "./message.js";
import { rendered } from "./placeholders.js";
import { stacks } from "./stacks.js";
import { later } from "./timing.js";
import { toggle } from "./widgets.js";

const PAGE = 100;
const COUNTED = new Intl.Collator("en", { numeric: true }); // as people count: u2 before u10

export class Users {
  constructor(app) {
    this.app = app;
    this.search = "";
    this.doubles = false;
    this.input = h("input", { type: "search", placeholder: "Search users", "aria-label": "Search users", autocomplete: "off", spellcheck: "false" });
    this.input.addEventListener("input", later(150, () => this.refresh()));
    this.only = toggle("Duplicates only", false, (on) => {
      this.doubles = on;
      this.refresh();
    });
    this.list = h("ul", { class: "cards users", "aria-label": "Users" });
    this.more = h("button", { type: "button", class: "button small", hidden: true, onclick: () => this.next() }, "More users");
    this.detail = h("section", { class: "detail page", "aria-label": "Chosen user" });
    this.root = h(
      "div",
      { class: "view split" },
      h(
        "section",
        { class: "side", "aria-label": "Users" },
        h("form", { class: "search", role: "search", onsubmit: (event) => this.submit(event) }, h("label", { class: "search-box" }, icon("search"), this.input, h("kbd", { "aria-hidden": "true" }, "/")), h("div", { class: "row" }, this.only.root)),
        this.list,
        h("div", { class: "row center" }, this.more),
      ),
      this.detail,
    );
  }

  /** Enter: search now, and focus the page. */
  submit(event) {
    event.preventDefault();
    this.refresh();
    this.app.main.focus();
  }

  show(user) {
    this.user = user ?? null;
    this.root.classList.toggle("chosen", this.user !== null);
    return this.refresh();
  }

  async refresh() {
    if (!inbox()) return this.nothing();
    try {
      const page = this.doubles ? await this.duplicates() : await get("/users", { search: this.input.value.trim(), limit: PAGE });
      this.after = page.next ?? null;
      this.shown = page.users;
      this.drawList();
      const user = this.user ?? page.users[0]?.user_id;
      if (user === undefined) this.nothing();
      else await this.load(user);
    } catch (error) {
      fill(this.detail, h("p", { class: "nothing" }, bdi(error.message)));
    }
  }

  async duplicates() {
    const wanted = this.input.value.trim().toLowerCase();
    const found = await get("/duplicates");
    return { users: found.filter((one) => one.user_id.toLowerCase().includes(wanted)).sort((one, other) => COUNTED.compare(one.user_id, other.user_id)).slice(0, 1000), next: null };
  }

  async next() {
    const page = await get("/users", { search: this.input.value.trim(), limit: PAGE, after: this.after });
    this.after = page.next ?? null;
    this.shown = [...this.shown, ...page.users];
    this.drawList();
  }

  drawList() {
    const chosen = this.user ?? this.shown[0]?.user_id;
    this.more.hidden = this.after === null;
    fill(
      this.list,
      this.shown.length ? null : h("li", { class: "quiet" }, this.doubles ? "No user got the same push twice." : "No user yet."),
      this.shown.map((one) =>
        h(
          "li",
          null,
          h(
            "a",
            { class: "card-link", href: `#/users/${part(one.user_id)}`, "aria-current": one.user_id === chosen ? "true" : null },
            bdi(one.user_id.slice(0, 200), "user-id"),
            one.same > 1 ? h("span", { class: "tag double" }, `same push ×${number(one.same)}`) : null,
            h("span", { class: "times" }, `×${number(one.accepted)}`),
          ),
        ),
      ),
    );
  }

  nothing() {
    const why = this.doubles ? "No user got the same push twice. A duplicate has the same message and the same custom fields." : "Users show up here with their first accepted push.";
    fill(this.detail, h("div", { class: "nothing" }, icon("users"), h("h2", null, this.doubles ? "None" : "Nobody yet"), h("p", null, why)));
  }

  async load(id) {
    const user = await get(`/users/${part(id)}`);
    const again = plain(user);
    if (this.drawn === again) return;
    this.drawn = again;
    fill(
      this.detail,
      h(
        "header",
        { class: "detail-head" },
        h("a", { class: "button small back", href: "#/users", "aria-label": "Back to the list" }, icon("back"), "Back"),
        h(
          "div",
          { class: "detail-titles" },
          h("p", { class: "eyebrow" }, "User"),
          h("h2", { class: "mono" }, bdi(user.user_id.slice(0, 300))),
          h("p", { class: "quiet" }, plural(user.accepted, "accepted push", "accepted pushes")),
        ),
        h("a", { class: "button", href: `#/pushes`, onclick: () => this.findPushes(user.user_id) }, icon("search"), "Pushes to this user"),
      ),
      h("div", { class: "columns wide-left" }, stacks(user), history(user)),
    );
  }

  findPushes(user) {
    const { pushes } = this.app.views;
    pushes.input.value = `user:${/[\s"]/.test(user) ? `"${user.replaceAll('"', "")}"` : user}`;
    pushes.find(pushes.input.value);
  }
}

/** Every push of the user, newest first. */
function history(user) {
  const pushes = [...(user.pushes ?? [])].reverse().slice(0, 200);
  return h(
    "section",
    { class: "block" },
    h("h3", null, "What was accepted ", h("span", { class: "count" }, number(user.pushes?.length ?? 0))),
    h(
      "ol",
      { class: "timeline" },
      pushes.map((push) => {
        const message = readMessage(push);
        const title = textOf(message, "title", message.languages[0]);
        return h(
          "li",
          null,
          h("time", { class: "mono" }, clock(push.time)),
          h("a", { href: `#/pushes/${push.id}` }, title === "" ? `Push ${push.id}` : bdi(rendered(title, push.custom_fields ?? {}).slice(0, 160))),
          push.times > 1 ? h("span", { class: "tag double" }, `${push.times} times in one request`) : null,
        );
      }),
    ),
  );
}

