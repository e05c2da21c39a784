// The live list of a Feed: only visible rows have elements, for any number of pushes.

import { bdi, fill, h } from "./dom.js";
import { FATES, clock, direction, fate, number, plural } from "./format.js";
import { icon } from "./icons.js";
import { pieces } from "./placeholders.js";

const HEIGHT = 84; // of a row, as in the style sheet
const SPARE = 6; // rows drawn beyond the visible ones

export class List {
  /**
   * @param {import("./feed.js").Feed} feed
   * @param {(id: number) => void} choose
   * @param {(row: object) => void} open shows the requests of a group
   * @param {(row: object) => string | null} inboxOf the label of a row's inbox, if the list has several
   */
  constructor(feed, choose, open, inboxOf) {
    this.feed = feed;
    this.choose = choose;
    this.open = open;
    this.inboxOf = inboxOf;
    this.byUser = false; // true for the requests of one group, whose texts are the same
    this.chosen = null; // key of the chosen row
    this.unseen = 0; // rows added above while the list was scrolled
    this.frame = 0;
    this.drawn = new Map(); // row -> its element
    this.fresh = new Set(); // ids of live rows, highlighted once
    this.canvas = h("div", { class: "canvas", role: "presentation" });
    this.root = h(
      "div",
      { class: "rows", role: "listbox", tabindex: "0", "aria-label": "Pushes, newest first", id: "rows" },
      this.canvas,
    );
    this.pill = h("button", { type: "button", class: "new-pill", hidden: true, onclick: () => this.top() });
    this.root.addEventListener("scroll", () => this.draw(), { passive: true });
    this.root.addEventListener("click", (event) => this.pressed(event));
    new ResizeObserver(() => this.draw()).observe(this.root);
  }

  pressed(event) {
    const row = event.target.closest("[data-id]");
    if (row) this.choose(Number(row.dataset.id));
    if (event.target.closest(".row-group")) this.open(this.feed.rows.find((one) => one.id === Number(row.dataset.id)));
  }

  /** Redraw after a change; `shift` rows were added above. */
  changed(shift) {
    const held = this.root.scrollTop > HEIGHT / 2;
    this.size();
    if (shift && held) this.root.scrollTop += shift * HEIGHT;
    if (shift > 0 && held) this.unseen += shift;
    if (shift > 0 && !held) this.feed.rows.slice(0, Math.min(shift, 20)).forEach((row) => this.fresh.add(row.id));
    this.draw();
  }

  get atTop() {
    return this.root.scrollTop < HEIGHT / 2;
  }

  size() {
    const height = `${this.feed.rows.length * HEIGHT}px`;
    if (this.canvas.style.height !== height) this.canvas.style.height = height;
  }

  /** Draw once at the next frame. */
  draw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.drawNow();
    });
  }

  drawNow() {
    const { scrollTop, clientHeight } = this.root;
    const first = Math.max(0, Math.floor(scrollTop / HEIGHT) - SPARE);
    const last = Math.min(this.feed.rows.length, Math.ceil((scrollTop + clientHeight) / HEIGHT) + SPARE) - 1;
    const kept = new Map();
    for (let index = first; index <= last; index++) {
      const row = this.feed.rows[index];
      const element = this.drawn.get(row) ?? this.row(row);
      kept.set(row, element);
      const top = `translateY(${index * HEIGHT}px)`;
      if (element.style.transform !== top) element.style.transform = top;
      element.setAttribute("aria-posinset", index + 1);
      element.setAttribute("aria-setsize", this.feed.rows.length);
      if (!element.isConnected) this.canvas.append(element);
    }
    for (const [row, element] of this.drawn) if (!kept.has(row)) element.remove();
    this.drawn = kept;
    this.mark();
    if (scrollTop < HEIGHT) this.unseen = 0;
    this.pill.hidden = this.unseen === 0;
    fill(this.pill, `↑ ${number(this.unseen)} new`);
    this.feed.need(last).then(undefined, (error) => this.failed?.(error));
  }

  mark() {
    let active = null;
    for (const element of this.drawn.values()) {
      const on = Number(element.dataset.key) === this.chosen;
      element.setAttribute("aria-selected", on);
      if (on) active = element;
    }
    if (active) this.root.setAttribute("aria-activedescendant", active.id);
    else this.root.removeAttribute("aria-activedescendant");
  }

  /** Mark the row of a request. @param {number | null} id @param {number | null} [key] of the row, if it is known */
  select(id, key = this.feed.rows.find((row) => row.id === id)?.key ?? null) {
    this.chosen = key;
    this.mark();
  }

  /** The index of the chosen row among the loaded ones, or -1. */
  get place() {
    return this.feed.rows.findIndex((row) => row.key === this.chosen);
  }

  /** The id `step` rows from the chosen one; the first if none is chosen. */
  neighbour(step) {
    const { place } = this;
    return this.feed.rows[place < 0 ? 0 : place + step]?.id ?? null;
  }

  /** Scroll the chosen row into sight. */
  reveal() {
    const { place } = this;
    if (place < 0) return;
    const top = place * HEIGHT;
    const { scrollTop, clientHeight } = this.root;
    if (top < scrollTop) this.root.scrollTop = top;
    else if (top + HEIGHT > scrollTop + clientHeight) this.root.scrollTop = top + HEIGHT - clientHeight;
  }

  top() {
    this.unseen = 0;
    this.root.scrollTop = 0;
    this.draw();
  }

  /** Draw the rows anew, with other names of inboxes. */
  rename() {
    for (const element of this.drawn.values()) element.remove();
    this.drawn.clear();
    this.draw();
  }

  /** Remove all rows, before those of another inbox or search. */
  clear() {
    for (const element of this.drawn.values()) element.remove();
    this.drawn.clear();
    this.unseen = 0;
    this.root.scrollTop = 0;
    this.size();
  }

  row(row) {
    const kind = fate(row);
    const lit = this.fresh.delete(row.id) ? " fresh" : "";
    const [language, title] = firstText(row.title);
    const [, body] = firstText(row.body, language);
    const from = this.inboxOf(row);
    const user = this.byUser && row.first_user ? row.first_user.slice(0, 60) + others(row) : "";
    const rest = row.requests > 1 ? [groupOf(row), crowd(row)] : [user ? null : audience(row), chips(row, from === null ? 4 : 2)];
    return h(
      "div",
      { class: `push-row ${kind}${lit}`, role: "option", id: `row-${row.id}`, "data-id": row.id, "data-key": row.key, "aria-selected": "false" },
      h("span", { class: "pip", title: FATES[kind].says }),
      h(
        "span",
        { class: "row-main", dir: "ltr" },
        user ? h("span", { class: "row-title mono" }, bdi(user)) : line("row-title", title, "no title"),
        user ? line("row-body", title, "no title") : line("row-body", body, row.error ?? "no body"),
      ),
      h("span", { class: "row-side" }, h("time", null, clock(row.time)), row.requests > 1 ? failures(row) : state(row, kind)),
      h("span", { class: "row-meta" }, from === null ? null : h("span", { class: "tag from", title: "Inbox" }, icon("inbox"), bdi(from.slice(0, 60))), rest),
    );
  }
}

/** One line of a push, its placeholders filled with their fallbacks. */
function line(className, text, instead) {
  if (text === "") return h("span", { class: `${className} quiet`, dir: "auto" }, instead.slice(0, 300));
  const nodes = pieces(text).map((piece) => (piece.kind === "plain" ? piece.text : h("i", { class: "filled", title: piece.name }, piece.text)));
  return h("span", { class: className, dir: "auto" }, nodes);
}

function firstText(texts, preferred) {
  const languages = Object.keys(texts ?? {});
  const language = languages.includes(preferred) ? preferred : (languages.find((one) => direction(one) === "ltr" && one.startsWith("en")) ?? languages[0]);
  return [language, language === undefined ? "" : String(texts[language]).slice(0, 300)];
}

function audience(row) {
  if (row.endpoint === "campaigns") return h("span", { class: "to" }, icon("megaphone"), "campaign");
  if (!row.users) return null;
  if (row.users > 3) return crowd(row);
  return h("span", { class: "to" }, icon("users"), row.first_user ? bdi(row.first_user.slice(0, 60)) : null, others(row));
}

const others = (row) => (row.users > 1 ? ` +${number(row.users - 1)}` : "");

/** The number of users of a broadcast: those of its accepted requests, or of the request if it is one. */
const crowd = (row) => h("span", { class: "to" }, icon("users"), plural(row.requests > 1 ? row.reached : row.users, "user"));

/** The mark of a group; a click shows its requests. */
const groupOf = (row) => h("span", { class: "row-group", title: "Show each push (Enter)" }, icon("layers"), `${plural(row.requests, "push", "pushes")} ›`);

const failures = (row) => (row.failed ? h("span", { class: "code failed", title: "Pushes that got no success" }, `${number(row.failed)} failed`) : null);

function chips(row, most) {
  const languages = row.languages ?? [];
  return [
    languages.slice(0, most).map((language) => h("span", { class: "tag" }, bdi(language.slice(0, 12)))),
    row.accepted && !row.platforms.length ? h("span", { class: "tag" }, "no platform") : null,
    languages.length > most ? h("span", { class: "tag" }, `+${languages.length - most}`) : null,
    row.fault ? h("span", { class: "tag fault", title: "A fault rule acted" }, icon("bolt"), bdi(row.fault.slice(0, 40))) : null,
  ];
}

function state(row, kind) {
  if (kind === "accepted") return null;
  return h("span", { class: `code ${kind}`, title: FATES[kind].says }, row.status ?? (row.accepted ? "taken" : "none"));
}
