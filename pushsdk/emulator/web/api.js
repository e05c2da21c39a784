// Calls of the control API. The token is read from `#token=` once, kept for this tab, and taken out of the address.

const ROOT = "/_emulator/v1";

/** An unsuccessful response; `message` is the server's error text. */
class ApiError extends Error {
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

/** The name of all inboxes together; only requests can be read by it. */
export const ALL = "*";

/** The public name of the chosen inbox, never a key; or `ALL`. */
export const inbox = () => session.inbox;
export function setInbox(name) {
  session.inbox = name;
}

export function headers() {
  return session.token ? { Authorization: `Bearer ${session.token}` } : {};
}

/** The address of a route for the chosen inbox or the one in `query`; parameters that are null or "" are omitted. */
export function address(path, query = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries({ inbox: session.inbox, ...query })) {
    if (value !== null && value !== undefined && value !== "") parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return `${ROOT}${path}${text ? `?${text}` : ""}`;
}

/**
 * Call a route.
 * @param {string} method
 * @param {string} path
 * @param {{query?: object, body?: unknown, text?: string, signal?: AbortSignal}} [options] `text` is a
 *   body that is JSON already
 */
export async function call(method, path, { query, body, text: json, signal } = {}) {
  const sent = { ...headers(), Accept: "application/json" };
  // Even without a body: the server requires JSON, which a form of another site can't send.
  if (method !== "GET") sent["Content-Type"] = "application/json";
  const response = await fetch(address(path, query), {
    method,
    headers: sent,
    body: json ?? (body === undefined ? undefined : JSON.stringify(body)),
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

/**
 * Send a request to the service through the page's own route, which needs no Api-Key of the inbox.
 * @param {string} text the body
 * @param {{inbox: string, endpoint: string}} to
 * @returns {Promise<{id: number, status: number | null, accepted: boolean, body: string}>}
 */
export const send = (text, { inbox, endpoint }) => call("POST", "/requests", { query: { inbox, endpoint }, text });

/** Save the requests of a search as a file of JSON lines. */
export async function download(search, name) {
  const response = await fetch(address("/export", { search }), { headers: headers(), cache: "no-store", credentials: "omit" });
  if (!response.ok) throw new ApiError(response.status, `the server answered ${response.status}`);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export const part = (text) => encodeURIComponent(text);
