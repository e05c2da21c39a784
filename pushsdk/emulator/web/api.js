// Calls of the control API. The token is read from `#token=` once, kept for this tab, and taken out of the address.

const ROOT = "/_emulator/v1";

/** An unsuccessful response; `message` is the server's error text. */
export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

const session = { inbox: null, token: takeToken() };

function takeToken() {
  const match = /^#token=(.+)$/.exec(location.hash);
  try {
    if (match) sessionStorage.setItem("token", decodeURIComponent(match[1]));
  } catch {
    // Malformed, or storage is forbidden: use the token for this page load only.
  }
  if (match) history.replaceState(null, "", location.pathname + location.search);
  try {
    return sessionStorage.getItem("token") ?? match?.[1] ?? null;
  } catch {
    return match?.[1] ?? null;
  }
}

/** Set a token from the form. */
export function setToken(token) {
  session.token = token;
  try {
    sessionStorage.setItem("token", token);
  } catch {
    // Without storage the token lasts until the page is closed.
  }
}

/** The public name of the chosen inbox, never a key. */
export const inbox = () => session.inbox;
export function setInbox(name) {
  session.inbox = name;
}

export function headers() {
  return session.token ? { Authorization: `Bearer ${session.token}` } : {};
}

/** The address of a route; parameters that are null or "" are omitted. */
export function address(path, query = {}) {
  const parameters = new URLSearchParams();
  if (session.inbox) parameters.set("inbox", session.inbox);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return `${ROOT}${path}${text ? `?${text}` : ""}`;
}

/**
 * Call a route.
 * @param {string} method
 * @param {string} path
 * @param {{query?: object, body?: unknown, signal?: AbortSignal}} [options]
 */
export async function call(method, path, { query, body, signal } = {}) {
  const sent = { ...headers(), Accept: "application/json" };
  // Even without a body: the server requires JSON, which a form of another site can't send.
  if (method !== "GET") sent["Content-Type"] = "application/json";
  const response = await fetch(address(path, query), {
    method,
    headers: sent,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  });
  const text = await response.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = null;
  }
  if (!response.ok) {
    const said = typeof value?.error === "string" ? value.error : `the server answered ${response.status}`;
    throw new ApiError(response.status, said);
  }
  return value;
}

export const get = (path, query, signal) => call("GET", path, { query, signal });

export const part = (text) => encodeURIComponent(text);
