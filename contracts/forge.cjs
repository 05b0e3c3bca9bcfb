// Runs forge of the npm package, and ends as it ends: the package's own command ends with 0 whatever the tests say.
"use strict";
const { spawnSync } = require("node:child_process");

const platform = { x64: "amd64", arm64: "arm64" }[process.arch];
const forge = require.resolve(`@foundry-rs/forge-${process.platform}-${platform}/bin/forge`);
const { status, error } = spawnSync(forge, process.argv.slice(2), { stdio: "inherit" });
if (error) console.error(`${forge}: ${error.message}`);
process.exit(status ?? 1);
