/**
 * Starts a run for every item, a few at once, and gives each item's promise. A run of the suite mostly waits; the test of
 * an item comes later than its run, so a failure is kept until it is looked at.
 */
export function startAll<T>(items: readonly T[], run: (item: T) => Promise<void>): (item: T) => Promise<void> {
  const all = new Map(items.map((item) => [item, Promise.withResolvers<void>()]));
  const waiting = [...all];
  const work = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const [item, { promise, resolve, reject }] = next;
      promise.catch(() => undefined);
      await run(item).then(resolve, reject);
    }
  };
  void Promise.all(Array.from({ length: 8 }, work));
  return (item) => all.get(item)?.promise ?? Promise.reject(new Error("this item was not started"));
}
