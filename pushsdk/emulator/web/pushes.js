// The view of the pushes: search, live list, the chosen push.

import { ALL, call, download, get, inbox } from "./api.js";
import { Detail } from "./detail.js";
import { bdi, confirmed, fill, h, toast } from "./dom.js";
import { Feed } from "./feed.js";
import { number, plural } from "./format.js";
import { icon } from "./icons.js";
import { List } from "./list.js";
import { later, wide } from "./timing.js";
import { welcome } from "./welcome.js";

const TERMS = [
  ["user:", "user:u-1029"],
  ["title:", 'title:"black friday"'],
  ["lang:", "lang:de"],
  ["campaign:", "campaign:…"],
  ["status:", "status:429"],
  ["is:", "is:accepted"],
];

export class Pushes {
  /** @param {{total: () => number, go: (hash: string) => void, label: (inbox: string) => string, refused: import("./refused.js").Refused}} app */
  constructor(app) {
    this.app = app;
    this.search = "";
    this.detail = new Detail({
      back: () => app.go("#/pushes"),
      deleted: (id) => this.gone(id),
      sent: (id) => app.go(`#/pushes/${id}`),
      edit: (id) => app.go(`#/compose/${id}`),
      drawn: (request) => this.drawn(request),
      group: (request) => this.openGroup(request),
    });
    this.feed = new Feed((query) => this.page(query), (shift) => this.changed(shift));
    this.list = new List(this.feed, (id) => app.go(`#/pushes/${id}`), (row) => this.openGroup(row), (row) => (inbox() === ALL ? app.label(row.inbox) : null));
    this.list.failed = (error) => this.say(error.message);
    this.requery = later(250, () => this.newMatches());
    this.root = h("div", { class: "view split pushes" }, this.side(), this.detail.root);
  }

  side() {
    this.input = h("input", {
      type: "search",
      id: "search",
      placeholder: "Search pushes",
      "aria-label": "Search pushes",
      "aria-describedby": "search-help",
      autocomplete: "off",
      spellcheck: "false",
    });
    const changed = later(150, () => this.find(this.input.value));
    this.input.addEventListener("input", changed);
    this.count = h("p", { class: "list-count", role: "status" });
    this.blank = h("div", { class: "list-blank", hidden: true });
    return h(
      "section",
      { class: "side", "aria-label": "Live list" },
      h(
        "form",
        { class: "search", role: "search", onsubmit: (event) => this.submit(event) },
        h("label", { class: "search-box" }, icon("search"), this.input, h("kbd", { "aria-hidden": "true" }, "/")),
        h(
          "p",
          { class: "search-help", id: "search-help" },
          TERMS.map(([term, example]) =>
            h("button", { type: "button", class: "term", title: `for example ${example}`, onclick: () => this.insert(term) }, term),
          ),
        ),
      ),
      h(
        "div",
        { class: "list-head" },
        this.count,
        (this.saving = h("button", { type: "button", class: "button small ghost", title: "Download as JSON lines", onclick: () => this.save() }, icon("download"), "Download")),
        (this.clearing = h("button", { type: "button", class: "button small ghost", onclick: () => this.removeAll() }, icon("trash"), "Delete all")),
      ),
      (this.groupBar = h("button", { type: "button", class: "group-bar", hidden: true, onclick: () => this.closeGroup() }, icon("back"), "All pushes", h("span", { class: "quiet" }, "one group, by user"))),
      this.app.refused.row,
      h("div", { class: "list-box" }, this.list.pill, this.list.root, this.blank),
    );
  }

  insert(term) {
    const old = this.input.value.trimEnd();
    this.input.value = old ? `${old} ${term}` : term;
    this.input.focus();
    this.find(this.input.value);
  }

  /** Enter: search now, and focus the list. */
  submit(event) {
    event.preventDefault();
    this.find(this.input.value);
    this.list.root.focus();
  }

  find(text) {
    if (text.trim() === this.search) return;
    this.search = text.trim();
    this.list.byUser = this.group !== null;
    if (this.detail.id !== null && this.detail.request) this.drawn(this.detail.request);
    this.reload();
  }

  /** A page of the list. A group of pushes with the same texts is one row, unless the search names a group. */
  async page(query) {
    const grouped = !this.group;
    const page = await get("/requests", { ...query, search: this.search, grouped });
    for (const row of page.requests) row.key = grouped ? row.group : row.id;
    return page;
  }

  /** The id of the group whose requests are listed, or null. */
  get group() {
    return /(?:^|\s)group:(\d+)(?:\s|$)/.exec(this.search)?.[1] ?? null;
  }

  openGroup({ group }) {
    this.input.value = `${this.search} group:${group}`.trim();
    this.find(this.input.value);
    if (!wide()) this.app.go("#/pushes");
    this.list.root.focus();
  }

  /** Open the group of the chosen row, if it is one. */
  openChosen() {
    const row = this.feed.rows[this.list.place];
    if (row?.requests > 1) this.openGroup(row);
  }

  closeGroup() {
    this.input.value = this.search.replace(/(^|\s)group:\d+(?=\s|$)/, "").trim();
    this.find(this.input.value);
  }

  /** Mark the row of the push that is shown, and tell the size of its group. */
  drawn(request) {
    this.list.select(request.id, this.group ? request.id : request.group);
    this.showGroup();
  }

  showGroup() {
    const row = this.group ? null : this.feed.rows.find((one) => one.key === this.list.chosen);
    this.detail.showGroup(row?.requests ?? 1);
  }

  /** Show nothing until another inbox is loaded. */
  clear() {
    this.feed.clear();
    this.list.clear();
  }

  /** Load the list again, from its top. */
  async reload() {
    this.clear();
    await this.freshen();
  }

  /** Replace the shown rows by the newest page. */
  async freshen() {
    try {
      await this.feed.reset(this.search ? 0 : this.app.total());
    } catch (error) {
      this.say(error.message);
    }
  }

  /** Load what the stream left out: too many requests, or those during a reconnect. */
  behind() {
    this.requery();
    clearTimeout(this.calm);
    this.calm = setTimeout(() => this.list.atTop && this.freshen(), 1500);
  }

  /** @param {string | undefined} id of the push to show; by default the newest if the page is wide */
  show(id) {
    const chosen = /^\d{1,15}$/.test(id) ? Number(id) : null;
    this.root.classList.toggle("chosen", chosen !== null || id === "refused");
    if (chosen !== this.detail.id || chosen === null) this.list.select(chosen);
    this.app.refused.close();
    if (id === "refused") return this.detail.empty(this.app.refused.open(this.detail.backButton()));
    if (!inbox()) return; // called again once there is one
    if (chosen !== null && chosen !== this.detail.id) this.detail.show(chosen);
    if (chosen === null) this.suggest();
    this.list.reveal();
    this.list.draw();
  }

  suggest() {
    if (inbox() && !this.feed.loaded) return;
    const first = this.feed.rows[0];
    this.list.select(null);
    if (first && wide()) {
      this.list.select(first.id);
      if (this.detail.id !== first.id) this.detail.show(first.id);
    } else if (!first) {
      this.detail.empty(this.search ? nothingFound(this.search) : welcome());
    }
  }

  changed(shift) {
    this.list.changed(shift);
    this.blank.hidden = this.feed.rows.length > 0;
    this.saving.disabled = !this.feed.rows.length;
    this.clearing.hidden = inbox() === ALL;
    this.clearing.disabled = !this.feed.rows.length;
    this.root.classList.toggle("empty", !this.feed.rows.length && !this.search);
    if (!this.feed.rows.length) fill(this.blank, this.search ? h("p", null, "Nothing matches.") : h("p", null, "Listening for pushes"));
    const open = this.feed.next !== null && this.search ? "+" : "";
    const loaded = this.feed.rows.filter((row) => row.endpoint === "campaigns").length;
    const campaigns = open || this.feed.next === null ? loaded : this.app.total("campaigns");
    const pushes = this.feed.requests - campaigns;
    fill(this.count, h("span", null, `${number(pushes)}${open} ${pushes === 1 ? "push" : "pushes"}${campaigns ? "," : ""}`), " ", campaigns ? h("span", null, plural(campaigns, "campaign")) : null);
    this.groupBar.hidden = this.group === null;
    this.showGroup();
    if (this.detail.id === null || !this.feed.rows.length) this.suggestIfVisible();
  }

  suggestIfVisible() {
    if (!this.root.classList.contains("chosen")) this.suggest();
  }

  /** Add live requests: the newest of them, and the number of all. */
  arrived(rows, count) {
    for (const row of rows) row.key = row.group;
    if (this.search) this.requery();
    else this.feed.settled(() => this.feed.arrived(rows, count));
  }

  // Only the server knows the matches of a search and the requests that the stream left out.
  async newMatches() {
    const turn = this.feed.turn;
    const page = await this.page({ limit: 100 }).catch(() => null);
    if (page === null || turn !== this.feed.turn) return;
    const { newest } = this.feed;
    const fresh = page.requests.filter((row) => row.id > newest);
    const gap = fresh.length === page.requests.length && page.next !== null;
    if (gap && this.search) this.reload();
    else this.feed.settled(() => this.feed.arrived(fresh, gap ? Math.max(fresh[0].id - newest, fresh.length) : fresh.length, true)); // estimated by ids
  }

  say(trouble) {
    this.blank.hidden = false;
    fill(this.blank, h("p", { class: "trouble" }, icon("alert"), bdi(trouble)));
  }

  gone(id) {
    const row = this.feed.rows.find((one) => one.key <= id && id <= one.id);
    const next = row?.key === this.list.chosen ? (this.list.neighbour(1) ?? this.list.neighbour(-1)) : null;
    if (row?.requests > 1) this.freshen();
    else this.feed.removed(id);
    if (this.detail.id === id) {
      this.detail.empty();
      this.app.go(next === null || !wide() ? "#/pushes" : `#/pushes/${next}`);
    }
  }

  async save() {
    try {
      await download(this.search, `${inbox() === ALL ? "all inboxes" : this.app.label(inbox()).replace(/[^\w .-]/g, "_")}.jsonl`);
      toast("Downloaded as JSON lines");
    } catch (error) {
      toast(error.message, "error");
    }
  }

  async removeAll() {
    const what = this.search ? `all requests that match ${this.search.slice(0, 100)}` : "all requests of this inbox";
    if (!(await confirmed(`Delete ${what}? The counts per user stay.`, "Delete all"))) return;
    try {
      const { deleted } = await call("DELETE", "/requests", { query: this.search ? { search: this.search } : { all: true } });
      toast(`${number(deleted)} deleted`);
      this.detail.empty();
      this.app.go("#/pushes");
      await this.reload();
    } catch (error) {
      toast(error.message, "error");
    }
  }

  /** Choose the push `step` rows away. */
  move(step) {
    const next = this.list.neighbour(step);
    if (next !== null) this.app.go(`#/pushes/${next}`);
  }
}

function nothingFound(search) {
  return h("div", { class: "nothing" }, h("p", null, "Nothing matches ", bdi(search.slice(0, 200), "mono")));
}
