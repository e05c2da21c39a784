// Numbers, times and states as text. Pure: nothing here touches the page.

const NUMBERS = new Intl.NumberFormat("en");
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

export const number = (value) => (typeof value === "number" ? NUMBERS.format(value) : "–");

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** Seconds since 1970 as a clock time, with the day unless it is today. */
export function clock(seconds) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) return "–";
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) return "–";
  return date.toDateString() === new Date().toDateString() ? CLOCK.format(date) : `${DAY.format(date)} ${CLOCK.format(date)}`;
}

/** Seconds in a readable unit. */
export function duration(seconds) {
  const units = [[86_400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const [size, name] = units.find(([unit]) => Math.abs(seconds) >= unit) ?? [1, "second"];
  return plural(Math.round((seconds / size) * 10) / 10, name);
}

/**
 * The result of a request, one of five words, for color and stamp.
 * @param {{status: number|null, accepted: boolean|number, fault: string|null}} request
 */
export function fate(request) {
  if (request.status === null || request.status === undefined) return request.accepted ? "lost" : "silent";
  if (request.accepted) return request.status < 300 ? "accepted" : "lost";
  return request.status >= 500 ? "failed" : "refused";
}

export const FATES = {
  accepted: { word: "Accepted", says: "accepted, and the client got a success" },
  lost: { word: "Accepted, unsaid", says: "accepted, but the client got no success and can't know" },
  refused: { word: "Refused", says: "not accepted" },
  failed: { word: "Failed", says: "not accepted: the service failed" },
  silent: { word: "No answer", says: "not accepted, and no response was sent" },
};

/** Any JSON value on one line. */
export function plain(value) {
  if (value === undefined) return "";
  try {
    return typeof value === "string" ? value : JSON.stringify(value);
  } catch {
    return "(nested too deeply)"; // can be parsed, but not serialized
  }
}

const RTL = new Set(["ar", "arc", "ckb", "dv", "fa", "he", "iw", "ks", "ku", "nqo", "ps", "sd", "syr", "ug", "ur", "yi"]);

/** "rtl" for languages written from right to left, else "ltr". */
export function direction(language) {
  const [base, script] = String(language).toLowerCase().split(/[-_]/);
  if (script === "latn") return "ltr";
  return RTL.has(base) || script === "arab" || script === "hebr" ? "rtl" : "ltr";
}

/** A valid language code for `lang=` and Intl, or null: codes in a push may be anything. */
export function locale(language) {
  try {
    return Intl.getCanonicalLocales(String(language).replaceAll("_", "-"))[0] ?? null;
  } catch {
    return null;
  }
}

/** The language's own name, if the browser has one. */
export function languageName(language) {
  const known = locale(language);
  if (known === null) return String(language);
  try {
    return new Intl.DisplayNames(["en"], { type: "language", fallback: "code" }).of(known) ?? known;
  } catch {
    return String(language);
  }
}
