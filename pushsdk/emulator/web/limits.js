// The limits of this inbox as a form. The interface defines none: every number and status is simulated.

import { call, get } from "./api.js";
import { bdi, fill, h, simulated, toast } from "./dom.js";

/** Name, label, step, hint: as in the server's Limits; an empty number means no limit. */
const NUMBERS = [
  ["max_users", "Users per request", "1", "1000"],
  ["max_body_bytes", "Body, bytes", "1", "1048576"],
  ["rate", "Rate, requests per second", "any", "50"],
  ["burst", "Burst, requests at once", "1", "one second's worth"],
  ["retry_after", "Retry-After, seconds", "any", "until the next is free"],
  ["quota", "Quota, users in all", "1", "100000"],
];

export class LimitsForm {
  constructor() {
    this.numbers = new Map();
    this.ids = h("textarea", { id: "limit-ids", rows: "3", dir: "ltr", spellcheck: "false", placeholder: "one id per line" });
    this.strict = h("input", { type: "checkbox", id: "limit-strict" });
    this.trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    this.root = h(
      "form",
      {
        class: "limits",
        onsubmit: (event) => {
          event.preventDefault();
          this.save();
        },
      },
      h("h3", null, "Limits ", simulated("The interface shows no limits and no error statuses; all of these are simulated.")),
      h("div", { class: "grid" }, NUMBERS.map((one) => this.number(one))),
      h("label", { class: "field", for: "limit-ids" }, "User ids that are refused", this.ids),
      h("label", { class: "inline", for: "limit-strict" }, this.strict, " Strict: refuse fields and values that the interface does not show"),
      this.trouble,
      h("div", { class: "row end" }, h("button", { type: "submit", class: "button primary" }, "Save limits")),
    );
  }

  number([name, label, step, hint]) {
    const box = h("input", { type: "number", id: `limit-${name}`, step, min: "0", placeholder: hint });
    this.numbers.set(name, box);
    return h("label", { class: "field", for: `limit-${name}` }, label, box);
  }

  async load() {
    try {
      this.put(await get("/limits"));
    } catch (error) {
      this.complain(error.message);
    }
  }

  put(answer) {
    const limits = answer.limits ?? answer;
    for (const [name, box] of this.numbers) box.value = limits[name] ?? "";
    this.ids.value = (limits.invalid_user_ids ?? []).join("\n");
    this.strict.checked = limits.strict === true;
    this.trouble.hidden = true;
  }

  async save() {
    const limits = { strict: this.strict.checked, invalid_user_ids: this.ids.value.split("\n").filter((one) => one !== "") };
    for (const [name, box] of this.numbers) if (box.value !== "") limits[name] = Number(box.value);
    try {
      await call("PUT", "/limits", { body: limits });
      toast("Limits saved");
      await this.load();
    } catch (error) {
      this.complain(error.message);
    }
  }

  complain(text) {
    this.trouble.hidden = false;
    fill(this.trouble, bdi(text.slice(0, 500)));
  }
}
