// Serves the dashboard's files and the API of an engine, as `keylane serve` does.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { setTimeout } from "node:timers/promises";
import { dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

import { Refused } from "./engine.mjs";
import { SCENES } from "./scenes.mjs";

const UI = join(dirname(fileURLToPath(import.meta.url)), "../..");
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".svg": "image/svg+xml",
};
const POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'";

/**
 * @param {{scene?: string, port?: number, token?: string, readOnly?: boolean, environment?: string}} [options]
 */
export async function startMock({ scene = "few", port = 0, token, readOnly = false, environment = "staging" } = {}) {
  const state = {
    engine: SCENES[scene](),
    isBroken: false,
    token,
    readOnly,
    environment,
    streams: new Set(),
    sockets: new Set(),
    requests: [],
    answering: 0,
  };
  const server = createServer((request, response) => answer(state, request, response));
  server.on("connection", (socket) => {
    state.sockets.add(socket);
    socket.on("close", () => state.sockets.delete(socket));
    if (state.isBroken) socket.destroy();
  });
  await new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve(null)));
  const address = server.address();
  return {
    url: `http://127.0.0.1:${address.port}/`,
    state,
    get engine() {
      return state.engine;
    },
    /** Stops answering. */
    break() {
      state.isBroken = true;
      for (const socket of state.sockets) socket.destroy();
    },
    heal() {
      state.isBroken = false;
    },
    async close() {
      state.engine.close();
      server.close();
      server.closeAllConnections();
    },
  };
}

async function answer(state, request, response) {
  const url = new URL(request.url, "http://localhost");
  state.requests.push({ method: request.method, path: url.pathname, query: url.search, headers: request.headers });
  try {
    if (!url.pathname.startsWith("/v1/") && !["/version", "/readyz", "/livez"].includes(url.pathname))
      return await file(url.pathname, response);
    if (state.token && request.headers.authorization !== `Bearer ${state.token}`)
      throw new Refused(401, "unauthorized", "A token is needed.");
    const fetchSite = request.headers["sec-fetch-site"];
    if (request.method !== "GET" && fetchSite && !["same-origin", "none"].includes(fetchSite))
      throw new Refused(403, "cross-site", "Changes come from this page only.");
    if (url.pathname === "/v1/events") return events(state, request, response, url);
    const payload = await readBody(request);
    state.answering += 1;
    response.on("close", () => (state.answering -= 1));
    await latency();
    const [status, body, headers] = route(state, request.method, url, payload);
    await latency();
    send(response, status, body, headers);
  } catch (error) {
    if (!(error instanceof Refused)) console.error(error);
    problem(response, error, url.pathname);
  }
}

const MAX_LATENCY_MS = Number(process.env.KEYLANE_UI_LATENCY_MS ?? 0);

/** Half of the time that an answer takes, so that its effect comes at a random moment of it. */
const latency = () => setTimeout((Math.random() * MAX_LATENCY_MS) / 2);

async function file(path, response) {
  const name = path === "/" ? "index.html" : path.replace(/^\/ui\//, "");
  const full = normalize(join(UI, decodeURIComponent(name)));
  const isServed = full.startsWith(UI) && !full.includes("/tests/") && (path === "/" || path.startsWith("/ui/"));
  const content = isServed ? await readFile(full).catch(() => null) : null;
  if (content === null) throw new Refused(404, "not-found", "There is no such page.");
  response.writeHead(200, {
    "Content-Type": TYPES[extname(full)] ?? "application/octet-stream",
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
  });
  response.end(content);
}

function send(response, status, body, headers = {}) {
  const text = body === undefined ? "" : JSON.stringify(body);
  response.writeHead(status, { "Content-Type": "application/json", ...headers });
  response.end(text);
}

function problem(response, error, path) {
  const { status = 500, code = "internal", message, errors = [] } = error;
  if (response.headersSent) return response.destroy();
  response.writeHead(status, { "Content-Type": "application/problem+json" });
  response.end(
    JSON.stringify({
      type: `/problems/${code}`,
      title: code.replaceAll("-", " "),
      status,
      detail: message,
      instance: path,
      code,
      ...(errors.length > 0 ? { errors } : {}),
    }),
  );
}

async function readBody(request) {
  let text = "";
  for await (const piece of request) text += piece;
  if (text === "") return {};
  try {
    return JSON.parse(text);
  } catch {
    throw new Refused(400, "bad-json", "The body is not JSON.");
  }
}

function page(items, url, view = (item) => item) {
  const limit = Number(url.searchParams.get("limit") ?? 50);
  const from = Number(url.searchParams.get("cursor") ?? 0);
  const more = from + limit < items.length;
  return { items: items.slice(from, from + limit).map(view), ...(more ? { next_cursor: String(from + limit) } : {}) };
}

function route(state, method, url, body) {
  const { engine } = state;
  const parts = url.pathname.split("/").slice(1).map(decodeURIComponent);
  if (parts[0] === "version")
    return [200, { name: "keylane", version: "0.1.0", environment: state.environment, read_only: state.readOnly }];
  if (parts[0] === "readyz" || parts[0] === "livez") return health(engine);
  if (method !== "GET" && state.readOnly) throw new Refused(403, "read-only", "This server takes no changes.");
  const [, name, id, verb, number, what] = parts;
  if (name === "summary") return [200, engine.summary()];
  if (name === "scheduler") return [200, engine.scheduler()];
  if (name === "history") {
    const [from, to] = ["from", "to"].map((end) => Date.parse(url.searchParams.get(end) ?? ""));
    return [200, engine.history(from, to)];
  }
  if (name === "kinds") return kinds(engine, id, verb);
  if (name === "webhooks") return webhooks(engine, method, url, id);
  if (name === "nodes") return nodes(engine, url, id);
  if (name === "workers") return [200, page(engine.workers, url)];
  if (name === "tenants") return [200, { items: engine.tenants }];
  if (name === "timeline")
    return [200, engine.timeline(url.searchParams.has("after") ? Number(url.searchParams.get("after")) : undefined)];
  if (name === "schedules") return schedules(engine, method, url, id, verb);
  if (name === "audit") return [200, page(engine.audit.filter(matches(url.searchParams)), url)];
  if (name === "keys") return keys(engine, method, url, id, verb);
  if (name === "jobs" && !id && method === "POST") return submit(engine, body);
  if (name === "jobs" && !id) return [200, page(listed(engine, url.searchParams), url, (job) => engine.view(job))];
  if (name === "jobs" && method === "GET") return read(engine, url, id, verb, number, what);
  if (name === "jobs") return change(engine, method, id, verb, body);
  throw new Refused(404, "not-found", "There is nothing here.");
}

/** Whether an entry of the audit log has the `who` and the `what` of a request. */
function matches(query) {
  return (entry) => ["who", "what"].every((name) => !query.has(name) || entry[name] === query.get(name));
}

function kinds(engine, name, verb) {
  if (!name) return [200, { items: engine.kinds }];
  const kind = engine.kinds.find((one) => one.name === name);
  if (!kind) throw new Refused(404, "unknown", `There is no kind ${name}.`);
  if (verb === "reset") kind.changed = [];
  else kind.paused = verb === "pause";
  return [200, kind];
}

function nodes(engine, url, verb) {
  if (!verb) return [200, { items: engine.nodes }];
  const node = engine.nodes.find((one) => one.address === url.searchParams.get("address"));
  if (!node) throw new Refused(404, "unknown", "There is no such server.");
  node.drained = verb === "drain";
  return [200, node];
}

function webhooks(engine, method, url, id) {
  if (!id) return [200, page(engine.webhooks, url)];
  const webhook = engine.webhooks.find((one) => one.id === id);
  if (!webhook) throw new Refused(404, "unknown", `There is no webhook ${id}.`);
  if (method === "DELETE") {
    engine.webhooks = engine.webhooks.filter((one) => one !== webhook);
    return [204];
  }
  Object.assign(webhook, { attempts: 0, state: "waiting", next_at: new Date().toISOString() });
  return [200, webhook];
}

function schedules(engine, method, url, name, verb) {
  if (!name) return [200, page(engine.schedules, url)];
  const schedule = engine.schedules.find((one) => one.name === name);
  if (!schedule) throw new Refused(404, "unknown", `There is no schedule ${name}.`);
  if (method === "POST" && verb === "run") {
    const job = engine.submit(schedule.job);
    Object.assign(schedule, { last_job: job.id, last_fired: new Date().toISOString(), fired: schedule.fired + 1 });
    return [202, engine.view(job)];
  }
  if (method === "POST" && ["pause", "resume"].includes(verb)) schedule.paused = verb === "pause";
  return [200, schedule];
}

function health(engine) {
  const isWell = (engine.store ?? "ok") === "ok";
  const checks = [
    {
      name: "store",
      ok: isWell,
      ...(isWell ? {} : { detail: "The disk is full; free some space." }),
    },
    { name: "scheduler", ok: true },
    { name: "workers", ok: true },
  ];
  return [isWell ? 200 : 503, { status: isWell ? "ok" : "unavailable", checks }];
}

const FIELDS = new Set([
  "kind",
  "name",
  "labels",
  "weight",
  "priority",
  "after",
  "after_on",
  "webhook",
  "expires_ms",
  "unique_ms",
  "subtasks",
  "payload",
  "key",
  "keys",
  "run_at",
  "delay_ms",
  "on_error",
  "on_fail",
  "attempts",
  "timeout_ms",
  "fan_in",
]);

function submit(engine, body) {
  const unknown = Object.keys(body).find((field) => !FIELDS.has(field));
  if (unknown)
    throw new Refused(400, "unknown-field", `There is no field "${unknown}".`, [
      { pointer: `/${unknown}`, detail: "unknown field" },
    ]);
  const job = engine.submit(body);
  return [202, engine.view(job), { Location: `/v1/jobs/${job.id}` }];
}

function listed(engine, query) {
  const [label, ...value] = (query.get("label") ?? "").split(":");
  const q = query.get("q")?.toLowerCase();
  return [...engine.jobs.values()].reverse().filter((job) => {
    if (query.get("state") && !query.get("state").split(",").includes(job.state)) return false;
    if (query.get("kind") && job.kind !== query.get("kind")) return false;
    if (label && job.labels[label] !== value.join(":")) return false;
    return !q || job.id.includes(q) || (job.name ?? "").toLowerCase().includes(q);
  });
}

function read(engine, url, id, verb, number, what) {
  const job = engine.job(id);
  const query = url.searchParams;
  if (verb === undefined) return [200, { ...engine.view(job), ...engine.chain(job) }];
  if (verb === "explain") return [200, { because: engine.because(job), ...engine.chain(job) }];
  if (verb === "subtasks" && what === "logs") return [200, { items: engine.subtask(id, number).logs ?? [] }];
  if (verb === "subtasks" && number !== undefined) return [200, engine.subtaskView(engine.subtask(id, number))];
  if (verb === "subtasks") {
    const found = job.subtasks.filter(
      (one) =>
        (!query.get("state") || one.state === query.get("state")) &&
        (!query.get("key") || one.keys.includes(query.get("key"))),
    );
    return [200, page(found, url, (one) => engine.subtaskView(one))];
  }
  if (verb === "results") {
    const ended = [...job.ended];
    if (query.get("order") === "key")
      ended.sort((a, b) => (a.keys[0] ?? "").localeCompare(b.keys[0] ?? "") || a.number - b.number);
    else if (query.get("order") !== "completion") ended.sort((a, b) => a.number - b.number);
    return [200, page(ended, url, (one) => one.outcome)];
  }
  throw new Refused(404, "not-found", "There is nothing here.");
}

function change(engine, method, id, verb, body) {
  if (method === "DELETE") return [204, engine.remove(id)];
  if (method === "PATCH") return [200, engine.view(engine.patch(id, body))];
  if (verb === "pause") return [200, engine.view(engine.pause(id))];
  if (verb === "resume") return [200, engine.view(engine.resume(id))];
  if (verb === "cancel") return [202, engine.view(engine.cancel(id, body.mode))];
  if (verb === "retry") return [202, engine.view(engine.retry(id, body.only ?? "failed", body.subtasks))];
  throw new Refused(404, "not-found", "There is nothing here.");
}

function keys(engine, method, url, key, verb) {
  if (method === "POST") return [200, engine.steer(key, verb)];
  if (key !== undefined) {
    const lane = engine.keys.get(key);
    return [200, lane ? engine.keyView(lane) : { key, state: "open", length: 0 }];
  }
  const views = [...engine.keys.values()].map((lane) => ({ lane, length: lane.queue.length - lane.first }));
  const byLength = url.searchParams.get("sort") === "length";
  views.sort((a, b) => (byLength ? b.length - a.length : a.lane.since - b.lane.since));
  return [200, page(views, url, ({ lane }) => engine.keyView(lane))];
}

function events(state, request, response, url) {
  const include = new Set((url.searchParams.get("include") ?? "").split(","));
  const isWanted = ({ event }) => !["summary", "timeline"].includes(event) || include.has(event);
  const write = (message) =>
    isWanted(message) &&
    response.write(`id: ${message.id}\nevent: ${message.event}\ndata: ${JSON.stringify(message)}\n\n`);
  response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  response.write("retry: 200\n: hello\n\n");
  const last = request.headers["last-event-id"];
  const first = state.engine.events[0];
  if (last !== undefined && first && Number(last) + 1 < Number(first.id)) response.write("event: reset\ndata: {}\n\n");
  else if (last !== undefined)
    for (const message of state.engine.events) if (Number(message.id) > Number(last)) write(message);
  const { engine } = state;
  engine.on("event", write);
  response.on("close", () => engine.off("event", write));
}
