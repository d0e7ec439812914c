/** What every adapter that speaks HTTP has to know, and must not know in three different ways. */

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
