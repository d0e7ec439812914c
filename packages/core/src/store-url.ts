import { StoreError } from "./store-error.ts";

/** A store's URL, taken apart: `{scheme}://{authority}/{path}?{options}`. */
export interface StoreUrl {
  /** The bucket, the container; `""` where the URL has none. */
  readonly authority: string;
  /** Without the slash before it, and without one after it. */
  readonly path: string;
  readonly options: ReadonlyMap<string, string>;
}

/**
 * For adapters: takes their URL apart.
 *
 * @param known the options the adapter takes.
 * @throws {StoreError} `INVALID_ARGUMENT` for a user or a password in the URL, an option that is not known or given
 *   twice, or no URL at all. The message never has the URL in it: it may hold a secret.
 */
export function parseStoreUrl(url: string, known: readonly string[]): StoreUrl {
  // Only what surely is a scheme is named in a message: what stands before a colon elsewhere may be a secret.
  const scheme = typeof url === "string" ? /^([a-z][a-z0-9+.-]*):\/\//i.exec(url)?.[1] : undefined;
  const refuse = (why: string): StoreError => new StoreError("INVALID_ARGUMENT", scheme ?? "store", why);
  if (scheme === undefined || !URL.canParse(url))
    throw refuse("the store's URL cannot be read: write it as scheme://name/prefix?option=value");
  const { host, pathname, searchParams, username, password, hash } = new URL(url);
  if (username !== "" || password !== "") {
    throw refuse("a store's URL has no user or password: leave credentials to the vendor's own default chain");
  }
  if (hash !== "") throw refuse("a store's URL has no #fragment: percent-encode the #");
  const options = new Map<string, string>();
  for (const [name, value] of searchParams) {
    if (!known.includes(name)) {
      throw refuse(`the URL has an option it does not know; it takes ${known.join(", ") || "none"}`);
    }
    if (options.has(name)) throw refuse(`the URL has the option ${name} twice`);
    options.set(name, value);
  }
  return {
    authority: decode(host, refuse),
    path: decode(pathname, refuse).replace(/^\//, "").replace(/\/$/, ""),
    options,
  };
}

function decode(text: string, refuse: (why: string) => StoreError): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw refuse("the URL has a % that begins no percent-encoded UTF-8: write a lone % as %25");
  }
}
