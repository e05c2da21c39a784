// The stage: both phones with a push on them, in a language and a view that stay from one push to the next.

import { bdi, fill, h, simulated } from "./dom.js";
import { direction, languageName } from "./format.js";
import { icon } from "./icons.js";
import { hostOf, imagesOn, link } from "./links.js";
import { badge, enabled, target, text } from "./message.js";
import { phone } from "./phones.js";
import { segmented } from "./widgets.js";

export class Stage {
  /** @param {() => void} [changed] called when another language or view was chosen */
  constructor(changed = () => {}) {
    this.changed = changed;
    this.expanded = false;
    this.language = null;
    this.bar = h("div", { class: "stage-bar" });
    this.screens = h("div", { class: "stage-screens" });
    this.root = h("div", { class: "stage" }, this.bar, this.screens);
  }

  /**
   * Show a push, or an explanation instead of the phones.
   * @param {import("./message.js").Message} message
   * @param {{values: object, time: number, instead?: Node | null, still?: boolean}} options
   */
  show(message, { values, time, instead = null, still = false }) {
    const { languages } = message;
    Object.assign(this, { message, values, time, instead });
    if (!languages.includes(this.language)) this.language = languages.find((one) => /^en\b/.test(one)) ?? languages[0] ?? "en";
    const key = JSON.stringify([languages, instead === null]);
    if (key !== this.shown) this.drawBar(); // a redraw would lose the focus
    this.shown = key;
    this.languageSwitch.choose(this.language);
    this.draw(still);
  }

  drawBar() {
    const { languages } = this.message;
    this.viewSwitch = segmented(
      "View",
      [["lock", "Lock screen"], ["expanded", "Expanded"]],
      this.expanded ? "expanded" : "lock",
      (view) => this.choose({ expanded: view === "expanded" }),
    );
    this.languageSwitch = segmented(
      "Language",
      languages.map((language) => [language, language.slice(0, 24), languageName(language).slice(0, 60)]),
      this.language,
      (language) => this.choose({ language }),
    );
    this.bar.hidden = this.instead !== null;
    fill(this.bar, languages.length ? this.languageSwitch.root : h("span", { class: "quiet" }, "no text in any language"), this.viewSwitch.root);
  }

  /** Draw the phones, without moving their cards if `still`. */
  draw(still = true) {
    this.screens.classList.toggle("still", still);
    fill(this.root, this.bar, this.instead ?? this.screens);
    if (this.instead) return;
    const shown = { message: this.message, language: this.language, values: this.values, time: this.time };
    const one = (platform) =>
      h(
        "figure",
        { class: "device" },
        phone(platform, shown, { expanded: this.expanded, open: () => this.toggle() }),
        h("figcaption", null, effects(this.message, platform, this.language)),
      );
    fill(this.screens, one("ios"), one("android"));
  }

  choose(choice) {
    Object.assign(this, choice);
    this.viewSwitch.choose(this.expanded ? "expanded" : "lock");
    this.languageSwitch.choose(this.language);
    this.draw();
    this.changed();
  }

  toggle() {
    this.choose({ expanded: !this.expanded });
  }

  nextLanguage() {
    const { languages } = this.message;
    if (languages.length > 1) this.choose({ language: languages[(languages.indexOf(this.language) + 1) % languages.length] });
  }
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
