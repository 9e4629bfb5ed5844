/** Help for tests of programs that use Keylane. */

export { ServerError, startServer, TestServer, type ServerOptions } from "./server.js";
export type { Setting } from "./toml.js";
