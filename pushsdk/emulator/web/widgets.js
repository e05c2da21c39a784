// Controls of several views: segmented choices, switches, tabs, tables of facts.

import { bdi, fill, h } from "./dom.js";

/**
 * A row of buttons, one of them pressed.
 * @param {string} label
 * @param {[string, string, string?][]} options value, text, longer text
 * @param {string} chosen
 * @param {(value: string) => void} changed
 */
export function segmented(label, options, chosen, changed) {
  const root = h("div", { class: "segmented", role: "group", "aria-label": label });
  const choose = (value) => {
    for (const button of root.children) button.setAttribute("aria-pressed", String(button.dataset.value === value));
  };
  for (const [value, text, title] of options) {
    const press = () => {
      choose(value);
      changed(value);
    };
    root.append(h("button", { type: "button", "data-value": value, title: title ?? null, onclick: press }, bdi(text)));
  }
  choose(chosen);
  return { root, choose };
}

/** An on/off switch that switches back if `changed` fails. */
export function toggle(label, on, changed) {
  const button = h(
    "button",
    { type: "button", class: "switch", role: "switch", "aria-checked": String(on) },
    h("span", { class: "switch-track", "aria-hidden": "true" }),
    h("span", null, label),
  );
  const set = (value) => button.setAttribute("aria-checked", String(value));
  button.addEventListener("click", async () => {
    const next = button.getAttribute("aria-checked") !== "true";
    set(next);
    try {
      await changed(next);
    } catch {
      set(!next);
    }
  });
  return { root: button, set };
}

let counter = 0;

/**
 * Tabs as in the pattern of WAI-ARIA: arrows move, one panel is visible.
 * @param {string} label
 * @param {[string, import("./dom.js").Child, () => import("./dom.js").Child[]][]} tabs key, title, content created when first shown
 */
export function tabs(label, list, chosen, switched) {
  const group = `tabs-${++counter}`;
  const bar = h("div", { class: "tabs", role: "tablist", "aria-label": label });
  const panels = h("div", { class: "panels" });
  const show = (key, focus = false) => {
    for (const [name, , content] of list) {
      const tab = bar.querySelector(`[data-key="${name}"]`);
      const panel = panels.querySelector(`[data-key="${name}"]`);
      const on = name === key;
      tab.setAttribute("aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
      panel.hidden = !on;
      if (on && !panel.childElementCount) fill(panel, content());
      if (on && focus) tab.focus();
    }
    switched(key);
  };
  list.forEach(([name, title], index) => {
    const keys = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      show(list[(index + step + list.length) % list.length][0], true);
    };
    const ids = { tab: `${group}-tab-${index}`, panel: `${group}-panel-${index}` };
    bar.append(
      h("button", { type: "button", role: "tab", id: ids.tab, "aria-controls": ids.panel, "data-key": name, onclick: () => show(name), onkeydown: keys }, title),
    );
    panels.append(h("div", { role: "tabpanel", id: ids.panel, "aria-labelledby": ids.tab, "data-key": name, class: "panel", tabindex: "0" }));
  });
  show(list.some(([name]) => name === chosen) ? chosen : list[0][0]);
  return h("div", { class: "tabbed" }, bar, panels);
}

/** Facts as a description list; rows without a value are omitted. @param {[string, import("./dom.js").Child][]} rows */
export function facts(rows) {
  return h(
    "dl",
    { class: "facts" },
    rows.filter(([, value]) => value !== null && value !== "").map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
}
