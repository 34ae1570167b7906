// Keeps the files of the explorer in the browser: after the first visit it works offline.
// The build fills in both constants.

const FILES = [];
const VERSION = "";
const PREFIX = `elmokit-explorer ${registration.scope} `; // other sites may have the same origin
const CACHE = PREFIX + VERSION;

addEventListener("install", (event) => {
  const fetched = async () => {
    const cache = await caches.open(CACHE);
    // Revalidated: what the page has just loaded is not downloaded again, and nothing is stale.
    await cache.addAll(FILES.map((file) => new Request(file, { cache: "no-cache" })));
  };
  event.waitUntil(fetched());
});

addEventListener("activate", (event) => {
  const cleaned = async () => {
    const others = (await caches.keys()).filter(
      (name) => name.startsWith(PREFIX) && name !== CACHE,
    );
    await Promise.all(others.map((name) => caches.delete(name)));
  };
  event.waitUntil(cleaned());
});

addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  const answered = async () => {
    const cache = await caches.open(CACHE);
    return (await cache.match(event.request, { ignoreSearch: true })) ?? fetch(event.request);
  };
  event.respondWith(answered());
});
