/** An S3 service as its clients need to know it. */
export interface S3Endpoint {
  readonly url: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

/** One service by all its addresses, and what ends it. */
export interface S3Service {
  readonly endpoints: readonly [S3Endpoint, ...S3Endpoint[]];
  stop(): Promise<void>;
}

/** What our own servers are started with, and `compose.yaml` too. */
export const TEST_CREDENTIALS = {
  region: "us-east-1",
  accessKeyId: "testaccess",
  secretAccessKey: "testsecret",
} as const;

/**
 * A service that runs already, named in the environment: `variable` holds its URL (several with commas between them for
 * one service with several addresses), `FIRSTWRITE_MATRIX_ACCESS_KEY` and `FIRSTWRITE_MATRIX_SECRET_KEY` the
 * credentials, if they are not those of `compose.yaml`.
 */
export function s3ServiceFromEnvironment(variable: string): S3Service | undefined {
  const [first, ...others] = (process.env[variable] ?? "").split(",").filter((url) => url !== "");
  if (first === undefined) return undefined;
  return { endpoints: [endpoint(first), ...others.map(endpoint)], stop: () => Promise.resolve() };
}

function endpoint(url: string): S3Endpoint {
  return {
    url,
    region: TEST_CREDENTIALS.region,
    accessKeyId: process.env["FIRSTWRITE_MATRIX_ACCESS_KEY"] ?? TEST_CREDENTIALS.accessKeyId,
    secretAccessKey: process.env["FIRSTWRITE_MATRIX_SECRET_KEY"] ?? TEST_CREDENTIALS.secretAccessKey,
  };
}
