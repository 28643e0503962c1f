// What the tasks share. A task is appended to the client's example in docs/connect.md.
export const model = process.env.TASK_MODEL
// The models whose provider fails: limited once, failing always, broken in the stream,
// failed at its end.
export const faults = JSON.parse(process.env.TASK_FAULTS)
export const prompt = 'Ask for the weather in Oslo.'
export const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false }
export const weather = ({ city }) => `sunny in ${city}`

let tasks = 0
const shown = { input: 0, output: 0 }

// count adds usage that the client shows.
export function count(input, output) {
  shown.input += input
  shown.output += output
}

// check checks the text at the end of a task.
export function check(text) {
  if (`${text}` !== 'done: sunny in Oslo') throw new Error(`the task ends with ${text}`)
  tasks++
}

// finish reports what the client showed for all tasks.
export function finish() {
  console.log(JSON.stringify({ ...shown, tasks }))
}

// failure returns the error that a promise is rejected with.
export async function failure(promise, kind, status) {
  let error
  try {
    await promise
  } catch (e) {
    error = e
  }
  if (!(error instanceof kind) || (status && error.status !== status)) throw new Error(`want ${kind.name} ${status ?? ''}; got ${error}`)
}
