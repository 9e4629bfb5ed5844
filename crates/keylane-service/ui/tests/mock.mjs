// A server to look at the dashboard without `keylane serve`: node mock.mjs [scene] [port]

import { SCENES } from "./mock/scenes.mjs";
import { startMock } from "./mock/server.mjs";

const [scene = "few", port = "8080"] = process.argv.slice(2);
if (!(scene in SCENES)) {
  console.error(`Scenes: ${Object.keys(SCENES).join(", ")}`);
  process.exit(2);
}
const { url } = await startMock({ scene, port: Number(port), token: process.env.TOKEN });
console.log(`${scene}: ${url}`);
