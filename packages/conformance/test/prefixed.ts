import { checkObjectName, type ConditionalStore, type ListedObject } from "@firstwrite/core";

/** A store in a folder of another, as a service that shares a bucket would have it. */
export function prefixed(inner: Required<ConditionalStore>, prefix: string): Required<ConditionalStore> {
  const traits = { ...inner.traits, nameBytesMax: inner.traits.nameBytesMax - Buffer.byteLength(prefix) };
  const inside = (name: string): string => {
    checkObjectName(traits, name);
    return prefix + name;
  };
  return {
    traits,
    create: async (name, bytes, options) => inner.create(inside(name), bytes, options),
    replace: async (name, expected, bytes, options) => inner.replace(inside(name), expected, bytes, options),
    read: async (name, options) => inner.read(inside(name), options),
    remove: async (name, expected, options) => inner.remove(inside(name), expected, options),
    async *list(start, options): AsyncGenerator<ListedObject, void, void> {
      for await (const object of inner.list(prefix + start, options)) {
        yield { ...object, name: object.name.slice(prefix.length) };
      }
    },
    close: () => inner.close(),
  };
}
