/** What every adapter that speaks HTTP has to know, and must not know in three different ways. */

import { toVersion, type Version } from "./conditional-store.ts";
import { StoreError } from "./store-error.ts";

/**
 * Whether the failure is of opening the connection, so that no request can have left. By `syscall` and not by `code`: an
 * ETIMEDOUT or EHOSTUNREACH can also end a connection over which the request has gone. Where several addresses were
 * tried, Node gives all failures.
 */
export function neverConnected(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.length > 0 && error.errors.every(neverConnected);
  return (
    error instanceof Error && "syscall" in error && (error.syscall === "connect" || error.syscall === "getaddrinfo")
  );
}

// RFC 9110's IMF-fixdate. `Date.parse` alone takes much else, a time without a zone as a local one.
const httpDate = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/;

/** The time of a `Date` or `Last-Modified` header in epoch milliseconds; `undefined` for anything that is not one. */
export function parseHttpDate(text: string): number | undefined {
  // oxlint-disable-next-line no-restricted-globals -- a text is read here, and no clock
  const time = httpDate.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(time) ? undefined : time;
}

/**
 * The time of a header that every read and write must have.
 *
 * @throws {StoreError} `UNSUPPORTED`: without the service's clock nothing can be said about a lease.
 */
export function timeOfHeader(store: string, header: "date" | "last-modified", value: string | undefined): number {
  const time = value === undefined ? undefined : parseHttpDate(value);
  if (time !== undefined) return time;
  const given = value === undefined ? `no ${header}` : `the ${header} ${value}`;
  throw new StoreError("UNSUPPORTED", store, `the service gave ${given}, which is no time`);
}

/** @throws {StoreError} `UNSUPPORTED` where there is no ETag, an empty one or a weak one, which If-Match never takes. */
export function versionOfETag(store: string, etag: string | undefined): Version {
  if (etag !== undefined && isStrongETag(etag)) return toVersion(etag);
  const given = etag === undefined || etag === "" ? "no ETag" : `the ETag ${etag}`;
  throw new StoreError("UNSUPPORTED", store, `the service gave ${given}, which is no version`);
}

/**
 * RFC 9110's strong entity-tag, and the bare token some services give instead; without the characters by which If-Match
 * would be read as a list or as "any", and without those beyond ASCII, which no service gives and no signature survives.
 */
export function isStrongETag(etag: string): boolean {
  return /^("?)[!#-)+\-.-~]+\1$/.test(etag) && !/^w\//i.test(etag);
}
