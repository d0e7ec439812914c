/** A service with the JSON API of Google Cloud Storage, and what ends it. */
export interface GcsService {
  readonly url: string;
  stop(): Promise<void>;
}
