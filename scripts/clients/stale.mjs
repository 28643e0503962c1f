// stale.mjs FOLDER reports the pinned packages of a folder that may have ended: those that are marked as deprecated, and
// those whose newest version is older than half a year. pi was pinned for months under a name that its makers had left.
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'

const halfYear = 182 * 24 * 60 * 60 * 1000
for (const name of Object.keys(JSON.parse(readFileSync(`${process.argv[2]}/package.json`)).dependencies)) {
  let seen
  try {
    seen = JSON.parse(execFileSync('npm', ['view', name, 'version', 'deprecated', 'time', '--json'], { encoding: 'utf8' }))
  } catch {
    console.log(`${name}: the registry does not tell its versions`)
    continue
  }
  const at = seen.time?.[seen.version]
  if (seen.deprecated) console.log(`${name}: deprecated: ${seen.deprecated}`)
  else if (at && Date.now() - Date.parse(at) > halfYear) console.log(`${name}: the newest version, ${seen.version}, is of ${at.slice(0, 10)}: was it renamed?`)
}
