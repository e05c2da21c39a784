// Personalization placeholders, `{{ first_name | 'there' }}`, found and filled as in the emulator.

// No part can match beyond the next "{{", so a hostile text can't cause backtracking.
const PLACEHOLDER = /\{\{\s*([^\s{}|'][^{}|'\r\n]*)\|\s*'((?:[^'{}]|\{(?!\{)|\}(?!\}))*)'\s*\}\}/g;

/** @typedef {{text: string, kind: "plain" | "fallback" | "value", name?: string}} Piece */

/** The text split at its placeholders, each filled. @returns {Piece[]} */
export function pieces(text, values = {}) {
  const found = [];
  let end = 0;
  for (const match of text.matchAll(PLACEHOLDER)) {
    if (match.index > end) found.push({ text: text.slice(end, match.index), kind: "plain" });
    const name = match[1].trimEnd();
    const value = Object.hasOwn(values, name) ? values[name] : undefined;
    const filled = value !== undefined && value !== null;
    found.push({ text: filled ? String(value) : match[2], kind: filled ? "value" : "fallback", name });
    end = match.index + match[0].length;
  }
  if (end < text.length) found.push({ text: text.slice(end), kind: "plain" });
  return found;
}

/** The text for a user with these values. */
export const rendered = (text, values = {}) => pieces(text, values).map((piece) => piece.text).join("");

/** The names in these texts, each with its fallbacks. @returns {Map<string, Set<string>>} */
export function names(texts) {
  const found = new Map();
  for (const text of texts) {
    for (const match of text.matchAll(PLACEHOLDER)) {
      const name = match[1].trimEnd();
      found.set(name, (found.get(name) ?? new Set()).add(match[2]));
    }
  }
  return found;
}
