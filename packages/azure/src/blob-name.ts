/**
 * Names as Azure keeps them. Azure would turn some into others' without a word: it replaces a backslash with a slash
 * (https://github.com/versity/versitygw/issues/845), and warns of segments that end with a dot
 * (https://learn.microsoft.com/en-us/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata).
 * Those few characters are percent-encoded in the blob's name itself, and so is a `%` that would read as one of these
 * encodings. Every other name is the blob's name as it stands, so that the records of the engine are where other readers
 * look for them.
 */

/** https://learn.microsoft.com/en-us/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata */
const blobNameCharsMax = 1024;
/** As above; of an account without a hierarchical namespace. */
const segmentsMax = 254;

export function toBlobName(name: string): string {
  return name.replaceAll(/%(?=2E|5C|25)|\\|\.(?=\/|$)/g, encoded);
}

export function fromBlobName(blobName: string): string {
  return blobName.replaceAll(/%(?:2E|5C|25)/g, (code) => decodeURIComponent(code));
}

/**
 * The longest beginning that the blobs of all names that begin with `prefix` have in common: how the end of `prefix` is
 * encoded depends on what follows it.
 */
export function toBlobNamePrefix(prefix: string): string {
  return toBlobName(prefix.replace(/\.*(?:%[25]?)?$/, ""));
}

/** What Azure would not take about a blob's name; `undefined` for a good one. */
export function blobNameFault(blobName: string): string | undefined {
  // "Code points like \\uE000 […] are not valid Unicode characters, so they cannot be used" (the page above). Azurite
  // takes U+FFFE, and then answers every listing of the container with 500.
  if (/\p{Co}|\p{Noncharacter_Code_Point}/u.test(blobName)) {
    return "has a character for private use, or none at all: remove it";
  }
  // UTF-16 code units, as in the limits of Microsoft's own platform; fewer than bytes of UTF-8, whatever the text.
  if (blobName.length > blobNameCharsMax) {
    return `is ${blobName.length} characters long with the prefix, as Azure gets it; it takes ${blobNameCharsMax}`;
  }
  const segments = blobName.split("/").length;
  if (segments > segmentsMax) return `has ${segments} segments with the prefix; Azure takes ${segmentsMax}`;
  return undefined;
}

/** How many characters are left for a name below `prefix`. */
export function charsLeft(prefix: string): number {
  return blobNameCharsMax - prefix.length;
}

function encoded(character: string): string {
  switch (character) {
    case "%":
      return "%25";
    case "\\":
      return "%5C";
    default:
      return "%2E";
  }
}
