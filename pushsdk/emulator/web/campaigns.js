// The view of the campaigns: the list; the schedule, segment and recipients of the chosen campaign.

import { call, get, inbox, part } from "./api.js";
import { bdi, clipped, fill, h, simulated, toast } from "./dom.js";
import { clock, number, plain, plural } from "./format.js";
import { icon } from "./icons.js";
import { readMessage, texts } from "./message.js";
import { phone, unsent } from "./phones.js";
import { names } from "./placeholders.js";
import { facts } from "./widgets.js";

const STATES = {
  waiting: "waits for its start",
  running: "its segment is being run",
  done: "its segment was run, its users are stored",
  failed: "its segment could not be run",
  "not run": "cannot run here",
};
const RECIPIENTS = 50;

export class Campaigns {
  constructor(app) {
    this.app = app;
    this.list = h("ul", { class: "cards", "aria-label": "Campaigns" });
    this.detail = h("section", { class: "detail page", "aria-label": "Chosen campaign" });
    this.root = h(
      "div",
      { class: "view split" },
      h("section", { class: "side", "aria-label": "Campaigns" }, h("div", { class: "side-head" }, h("h2", null, "Campaigns")), this.list),
      this.detail,
    );
  }

  show(uuid) {
    this.uuid = uuid ?? null;
    this.preview = null;
    this.root.classList.toggle("chosen", this.uuid !== null);
    return this.refresh();
  }

  async refresh() {
    if (!inbox()) return this.nothing();
    try {
      const answer = await get("/campaigns");
      const campaigns = Array.isArray(answer) ? answer : answer.campaigns; // newest first
      this.drawList(campaigns);
      const chosen = this.uuid ?? campaigns[0]?.uuid;
      if (chosen === undefined) this.nothing();
      else await this.load(chosen);
    } catch (error) {
      fill(this.detail, h("p", { class: "nothing" }, bdi(error.message)));
    }
  }

  nothing() {
    fill(
      this.detail,
      h(
        "div",
        { class: "nothing" },
        icon("megaphone"),
        h("h2", null, "No campaign yet"),
        h("p", null, "POST one to ", h("code", null, "/v1/campaigns"), ". Its segment's query runs on the audience's tables of this machine."),
      ),
    );
  }

  drawList(campaigns) {
    const current = this.uuid ?? campaigns[0]?.uuid;
    fill(
      this.list,
      campaigns.map((one) =>
        h(
          "li",
          null,
          h(
            "a",
            { class: "card-link", href: `#/campaigns/${part(one.uuid)}`, "aria-current": one.uuid === current ? "true" : null },
            h("span", { class: "row-title" }, one.name ? bdi(one.name.slice(0, 200)) : h("span", { class: "quiet" }, "no name")),
            h("span", { class: "row-meta" }, state(one.state), h("span", null, whenOf(one)), Number.isInteger(one.users) ? h("span", null, plural(one.users, "user")) : null),
          ),
        ),
      ),
    );
  }

  async load(uuid) {
    const campaign = await get(`/campaigns/${part(uuid)}`);
    // The request contains the segment, the schedule and the message.
    if (this.key !== campaign.id) {
      const request = await get(`/requests/${campaign.id}`).catch(() => null); // the request may be deleted
      this.sent = request?.body ?? null;
      this.key = campaign.id;
    }
    this.draw(campaign, this.sent ?? { segment: campaign.segment });
  }

  draw(campaign, sent) {
    const again = plain([campaign, sent]);
    if (this.drawn === again) return;
    this.drawn = again;
    const back = h("a", { class: "button small back", href: "#/campaigns", "aria-label": "Back to the list" }, icon("back"), "Back");
    fill(
      this.detail,
      h(
        "header",
        { class: "detail-head" },
        back,
        h(
          "div",
          { class: "detail-titles" },
          h("p", { class: "eyebrow" }, "Campaign · ", bdi(campaign.uuid, "mono")),
          h("h2", { dir: "auto" }, clipped(campaign.name || "No name", 140, "Name")),
          campaign.external_id ? h("p", { class: "quiet" }, "externalId ", bdi(campaign.external_id.slice(0, 200), "mono")) : null,
        ),
        ["waiting", "failed", "not run"].includes(campaign.state) && campaign.segment?.query ? h("button", { type: "button", class: "button primary", onclick: () => this.start(campaign.uuid) }, campaign.state === "failed" ? "Run again" : "Start now") : null,
        h("div", { class: `stamp ${campaign.state === "failed" ? "failed" : campaign.state === "done" ? "accepted" : "refused"}` }, h("b", null, campaign.state)),
      ),
      h("div", { class: "columns" }, h("div", null, schedule(campaign, sent), segment(campaign, sent)), h("div", null, result(campaign), this.recipients(campaign, sent))),
    );
  }

  async start(uuid) {
    try {
      await call("POST", `/campaigns/${part(uuid)}/start`);
      await this.refresh();
    } catch (error) {
      toast(error.message, "error");
    }
  }

  recipients(campaign, sent) {
    const list = (campaign.recipients ?? []).slice(0, RECIPIENTS);
    if (!list.length) return null;
    const message = readMessage(sent);
    const wanted = [...names(texts(message)).keys()];
    const fields = list.map((one) => one.fields ?? {});
    const columns = [...new Set([...wanted, ...fields.flatMap((one) => Object.keys(one))])].filter((name) => name !== "user_id").slice(0, 6);
    const stage = h("div", { class: "stage-screens small" });
    const rows = list.map((one, index) => {
      const user = String(one.user_id);
      const press = h("button", { type: "button", class: "link", "aria-pressed": "false" }, bdi(user.slice(0, 120)));
      press.addEventListener("click", () => {
        for (const other of body.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === press));
        preview(stage, message, fields[index], campaign.started ?? campaign.time);
      });
      return h("tr", null, h("th", { scope: "row" }, press), columns.map((name) => h("td", null, Object.hasOwn(fields[index], name) && fields[index][name] !== null ? bdi(plain(fields[index][name]).slice(0, 80)) : h("span", { class: "ph fallback" }, "fallback"))));
    });
    const body = h("tbody", null, rows);
    body.querySelector("button").setAttribute("aria-pressed", "true");
    preview(stage, message, fields[0], campaign.started ?? campaign.time);
    const head = h("tr", null, h("th", { scope: "col" }, "User"), columns.map((name) => h("th", { scope: "col" }, bdi(name.slice(0, 60), "mono"))));
    return h(
      "section",
      { class: "block" },
      h("h3", null, "First recipients ", simulated("The users that the query selects on this machine's tables, not on the service's.")),
      stage,
      h("p", { class: "hint" }, "Choose one to see the push as this user does."),
      h("div", { class: "scroll-x few", tabindex: "0", role: "region", "aria-label": "First recipients" }, h("table", { class: "fields" }, h("thead", null, head), body)),
    );
  }
}

function preview(stage, message, values, time) {
  const language = message.languages.find((one) => /^en\b/.test(one)) ?? message.languages[0] ?? "en";
  const shown = { message, language, values, time: time ?? Date.now() / 1000 };
  fill(stage, unsent(message) ?? ["ios", "android"].map((one) => phone(one, shown, { expanded: false })));
}

const state = (name) => h("span", { class: `tag state ${String(name).replaceAll(" ", "-")}`, title: STATES[name] ?? "" }, plain(name));

const whenOf = (one) => (typeof one.start === "number" ? clock(one.start) : "");

function schedule(campaign, sent) {
  const given = sent.schedule ?? {};
  return h(
    "section",
    { class: "block" },
    h("h3", null, "Schedule"),
    facts([
      ["type", "type" in given ? bdi(plain(given.type).slice(0, 80), "mono") : h("span", { class: "quiet" }, "not set")],
      ["startTs", "startTs" in given ? h("span", { class: "mono" }, plain(given.startTs).slice(0, 80)) : h("span", { class: "quiet" }, "not set")],
      ["Read as", [bdi(campaign.reading || "–"), " ", simulated("The unit of startTs is not shown in the interface.")]],
      ["Accepted", clock(campaign.time)],
      ["Starts", typeof campaign.start === "number" ? clock(campaign.start) : "when started by hand"],
      ["Ran", campaign.started ? clock(campaign.started) : null],
      [campaign.state === "failed" ? "Failed" : "Done", campaign.finished ? clock(campaign.finished) : null],
    ]),
  );
}

function segment(campaign, sent) {
  const given = campaign.segment ?? sent.segment ?? {};
  return h(
    "section",
    { class: "block" },
    h("h3", null, "Segment"),
    h("pre", { class: "query", tabindex: "0", role: "region", "aria-label": "Query" }, plain(given.query) || "no query"),
    facts([["primaryKey", given.primaryKey === undefined ? h("span", { class: "quiet" }, "not set") : bdi(plain(given.primaryKey).slice(0, 120), "mono")]]),
  );
}

function result(campaign) {
  const { error, users } = campaign;
  return h(
    "section",
    { class: `block result ${error ? "failed" : ""}` },
    h("h3", null, "Result"),
    error ? h("p", { class: "trouble" }, icon("alert"), clipped(plain(error), 600, "Error")) : null,
    Number.isInteger(users) ? h("p", { class: "big" }, h("b", null, number(users)), users === 1 ? " user" : " users") : error ? null : h("p", { class: "quiet" }, STATES[campaign.state] ?? ""),
    h("p", null, h("a", { href: `#/pushes/${campaign.id}` }, "Open its request")),
  );
}
