/** What is in the bodies of the JSON API's answers, as far as it is used here. Pure; nothing in a body is taken on trust. */

/** The reason in an error of the JSON API; `undefined` where the body is none. */
export function reasonOf(body: string): string | undefined {
  const first = member(member(member(parsed(body), "error"), "errors"), "0");
  const reason = member(first, "reason");
  return typeof reason === "string" ? reason : undefined;
}

/** Of what the service says it has stored, what can be used. Its numbers are strings; one that is not might be inexact. */
export function storedOf(body: string): {
  readonly generation: string | undefined;
  readonly crc32c: string | undefined;
} {
  const resource = parsed(body);
  const generation = member(resource, "generation");
  const crc32c = member(resource, "crc32c");
  return {
    generation: typeof generation === "string" ? generation : undefined,
    crc32c: typeof crc32c === "string" ? crc32c : undefined,
  };
}

interface Page {
  readonly items: readonly { readonly name: string; readonly updated: number }[];
  readonly nextPageToken: string | undefined;
}

/** A page of a listing; `undefined` for anything else, as a list that ends early in silence would be worse than none. */
export function pageOf(body: string): Page | undefined {
  const page = parsed(body);
  const items = member(page, "items") ?? [];
  const nextPageToken = member(page, "nextPageToken");
  if (typeof page !== "object" || page === null || Array.isArray(page) || !Array.isArray(items)) return undefined;
  if (nextPageToken !== undefined && (typeof nextPageToken !== "string" || nextPageToken === "")) return undefined;
  const listed: Page["items"][number][] = [];
  for (const item of items) {
    const name = member(item, "name");
    const updated = timeOf(member(item, "updated"));
    if (typeof name !== "string" || Number.isNaN(updated)) return undefined;
    listed.push({ name, updated });
  }
  return { items: listed, nextPageToken };
}

function timeOf(text: unknown): number {
  return typeof text === "string" && rfc3339.test(text) ? Date.parse(text) : Number.NaN;
}

const rfc3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/;

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

/** A member of what may be an object or an error. */
export function member(x: unknown, name: string): unknown {
  return typeof x === "object" && x !== null ? Reflect.get(x, name) : undefined;
}
