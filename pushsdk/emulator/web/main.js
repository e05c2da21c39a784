// The start of the page: wires the parts, follows the address, the keys and the stream.

import { ALL, address, call, get, headers, inbox, setInbox, setToken } from "./api.js";
import { Compose } from "./compose.js";
import { readService, service } from "./connect.js";
import { dialog, fill, h, toast } from "./dom.js";
import { Faults } from "./faults.js";
import { listen } from "./keys.js";
import { Choice } from "./choice.js";
import { Elsewhere } from "./elsewhere.js";
import { Pushes } from "./pushes.js";
import { Refused } from "./refused.js";
import { follow } from "./stream.js";
import { Frames, later } from "./timing.js";
import { Top } from "./top.js";
import { Users } from "./users.js";

const LOOK = 1500; // ms between two requests for all inboxes

class App {
  constructor() {
    this.main = document.getElementById("main");
    this.list = [];
    this.refused = new Refused();
    this.elsewhere = new Elsewhere((name) => this.choose(name).then(() => this.go("#/pushes")));
    document.getElementById("top").after(this.elsewhere.root);
    this.top = new Top({ chose: (name) => this.choose(name), opened: () => this.look(), named: () => this.rename() });
    this.views = { pushes: new Pushes(this), compose: new Compose(this), users: new Users(this), faults: new Faults(this) };
    this.choice = new Choice((name) => this.choose(name, location.hash));
    this.frames = new Frames({ requests: (rows, count) => this.arrived(rows, count), other: (event, data) => this.happened(event, data) });
    this.refresh = later(500, () => this.choice.root.hidden && this.views[this.view]?.refresh?.());
    fill(this.main, this.choice.root, Object.values(this.views).map((view) => view.root));
    addEventListener("hashchange", () => this.route());
    listen(this);
    this.route();
    this.start();
  }

  /** The number of requests of the chosen inbox, or of the campaigns among them, if known. */
  total(what = "requests") {
    return this.list.reduce((sum, one) => sum + (inbox() === ALL || one.inbox === inbox() ? one[what] : 0), 0);
  }

  /** The name of an inbox for people. */
  label(name) {
    return this.list.find((one) => one.inbox === name)?.label ?? "Inbox";
  }

  go(hash) {
    if (location.hash === hash) this.route();
    else location.hash = hash;
  }

  route() {
    const [, key, id] = /^#\/(\w+)(?:\/(.*))?$/.exec(location.hash) ?? [];
    this.view = Object.hasOwn(this.views, key) ? key : "pushes";
    // Only requests can be shown over all inboxes; a link from a request leads into its inbox.
    const needsOne = inbox() === ALL && ["users", "faults"].includes(this.view);
    const from = this.views.pushes.detail.request?.inbox;
    if (needsOne && id && from) return this.choose(from, location.hash);
    for (const [name, view] of Object.entries(this.views)) view.root.hidden = needsOne || name !== this.view;
    this.choice.show(needsOne ? this.view : null, this.list);
    this.top.view(this.view);
    if (this.list.length) this.paint();
    if (!needsOne) this.views[this.view].show(id ? decoded(id) : undefined);
  }

  async start() {
    const wanted = new URLSearchParams(location.search).get("inbox") ?? stored();
    await this.look(wanted);
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, LOOK));
      if (!document.hidden) await this.look();
    }
  }

  /** Load the inboxes; choose one if none is chosen. */
  async look(wanted) {
    let refused;
    try {
      [this.list, refused] = await Promise.all([get("/inboxes"), get("/unmatched"), service.inbox ? null : readService()]);
    } catch (error) {
      if (error.status === 401 || error.status === 403) this.askToken(error.message);
      else this.top.connection("reconnecting");
      return;
    }
    const known = (name) => this.list.some((one) => one.inbox === name || name === ALL);
    if (inbox() && !known(inbox())) await this.lost();
    if (!inbox()) await this.choose(known(wanted) ? wanted : this.first());
    this.refused.show(refused);
    this.paint();
    const { pushes } = this.views;
    if (inbox() === ALL && this.total() < pushes.feed.requests && !pushes.search) pushes.freshen(); // some were deleted
  }

  /** The inbox that a new page opens: the one with requests, all if there are several, the terminal's if there are none. */
  first() {
    const used = this.list.filter((one) => one.requests > 0);
    return used.length > 1 ? ALL : (used[0]?.inbox ?? service.inbox);
  }

  paint() {
    this.top.inboxes(this.list, inbox());
    this.elsewhere.show(this.list, inbox());
    const names = JSON.stringify(this.list.map((one) => [one.inbox, one.label]).sort());
    if (inbox() === ALL && names !== this.names) this.views.pushes.list.rename();
    this.names = names;
  }

  /** Start anew: a restarted emulator may not have the chosen inbox. */
  async lost() {
    setInbox(null);
    await readService().catch(() => {});
    this.close?.();
    this.views.pushes.clear();
    this.views.pushes.detail.empty();
  }

  /** @param {string} name @param {string | null} [hash] the page to stay on, in place of the view of the inbox */
  async choose(name, hash = null) {
    setInbox(name);
    store(name);
    this.close?.();
    this.frames.clear();
    this.paint();
    const { pushes } = this.views;
    pushes.detail.empty();
    if (hash === null && /^#\/(pushes|users)\/./.test(location.hash) && this.chosenBefore) this.go(`#/${this.view}`);
    this.chosenBefore = true;
    pushes.clear();
    this.connect();
    this.route();
  }

  /** Rename the inbox: the server never shows a key, so a label tells inboxes apart. */
  rename() {
    const old = this.list.find((one) => one.inbox === inbox())?.label ?? "";
    const box = h("input", { type: "text", id: "inbox-name", maxlength: "200", value: old, autofocus: true });
    const form = h("form", { class: "row" }, h("label", { class: "field grow", for: "inbox-name" }, "Name", box), h("button", { class: "button primary" }, "Save"));
    const shown = dialog("Name this inbox", form);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        await call("PUT", "/label", { body: { label: box.value } });
        shown.close();
        await this.look();
      } catch (error) {
        toast(error.message, "error");
      }
    });
  }

  connect() {
    this.close?.();
    this.greeted = false;
    this.close = follow({
      address: () => address("/events"),
      headers,
      received: (messages) => this.frames.take(messages),
      state: (state) => this.top.connection(state),
    });
  }

  arrived(rows, count) {
    this.views.pushes.arrived(rows, count);
    this.refresh();
  }

  happened(event, data) {
    const { pushes } = this.views;
    // A second hello follows a reconnect: keep the scrolled list, and load the rest.
    if (event === "reset" || (event === "hello" && !this.greeted)) pushes.reload().then(() => this.route());
    else if (event === "hello" || event === "resync") pushes.behind();
    else if (event === "deleted") this.deleted(data);
    if (event === "hello") {
      this.greeted = true;
      readService().catch(() => {}); // the key of a restarted emulator; the next look reports errors
    }
    this.refresh();
  }

  deleted(data) {
    const { pushes } = this.views;
    const { feed } = pushes;
    if (!Number.isInteger(data?.id)) pushes.freshen();
    else feed.settled(() => feed.rows.some((row) => row.key <= data.id && data.id <= row.id) && pushes.gone(data.id));
  }

  /** Ask for the token if the address had none. */
  askToken(why) {
    const box = h("input", { type: "password", "aria-label": "Token", autocomplete: "off" });
    const form = h(
      "form",
      {
        class: "nothing token",
        onsubmit: (event) => {
          event.preventDefault();
          setToken(box.value);
          location.reload();
        },
      },
      h("h2", null, "This emulator needs its token"),
      h("p", null, why),
      h("div", { class: "row" }, box, h("button", { class: "button primary" }, "Open")),
    );
    if (!this.main.querySelector(".token")) fill(this.main, form);
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function stored() {
  try {
    return sessionStorage.getItem("inbox");
  } catch {
    return null;
  }
}

function store(name) {
  try {
    sessionStorage.setItem("inbox", name);
  } catch {
    // Without storage the next page opens the newest inbox.
  }
}

new App();
