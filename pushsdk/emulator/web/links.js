// Addresses that came in a push: only http and https can be followed or loaded, anything else is text.

import { bdi, h } from "./dom.js";
import { icon } from "./icons.js";

/** True if the page was opened with remote images on, which the server's policy then allows. */
export const imagesOn = new URLSearchParams(location.search).get("images") === "1";

/** The address as the browser would follow it; null if it must not be followed. */
export function followable(text) {
  if (typeof text !== "string" || !/^https?:\/\//i.test(text.trim())) return null;
  try {
    const url = new URL(text.trim());
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

/** An address in a text: a link if it can be followed, else text with a reason. */
export function link(text) {
  const href = followable(text);
  const shown = text.length > 160 ? `${text.slice(0, 160)}…` : text;
  if (href === null) {
    return h("span", { class: "url", title: "Only http and https addresses are links here" }, bdi(shown, "mono"));
  }
  return h(
    "a",
    { class: "url", href, rel: "noopener noreferrer", target: "_blank", title: href.slice(0, 500) },
    bdi(shown, "mono"),
    icon("external"),
  );
}

/** A link to a page of the guide, which opens beside this page. */
export function guide(topic, attributes, ...content) {
  return h("a", { href: topic ? `/docs/${topic}` : "/docs", target: "_blank", rel: "noopener noreferrer", ...attributes }, content);
}

/** The host that an image would come from. */
function hostOf(text) {
  const href = followable(text);
  return href === null ? "not an http(s) address" : new URL(href).host;
}

/**
 * A remote image, or a substitute while images are off or if it can't be loaded.
 * @param {string} url
 * @param {string} className
 * @param {string} what for its alternative text
 */
export function picture(url, className, what) {
  const href = followable(url);
  const stand = (why) =>
    h(
      "span",
      { class: `${className} no-picture`, role: "img", "aria-label": `${what}: ${why}`, title: `${what}: ${why}` },
      icon("image"),
      h("span", { class: "no-picture-text" }, bdi(why)),
    );
  if (href === null) return stand("not an http(s) address");
  if (!imagesOn) return stand(hostOf(url));
  const image = h("img", { class: className, src: href, alt: what, referrerpolicy: "no-referrer", decoding: "async" });
  image.addEventListener("error", () => image.replaceWith(stand("could not be loaded")), { once: true });
  return image;
}

/** Turn remote images on or off by reloading the page, because the policy is the server's. */
export function switchImages() {
  const query = new URLSearchParams(location.search);
  if (imagesOn) query.delete("images");
  else query.set("images", "1");
  const rest = query.toString();
  location.assign(`${location.pathname}${rest ? `?${rest}` : ""}${location.hash}`);
}
