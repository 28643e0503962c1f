import { tool } from '@openai/agents'
import { check, count, finish, model, parameters, prompt, weather } from './task.mjs'

const tools = [tool({ name: 'weather', description: 'Tells the weather.', parameters, strict: true, execute: weather })]
const agent = new Agent({ name: 'Guide', instructions: 'Be brief.', model, tools })
for (const useResponses of [true, false]) {
  const provider = new OpenAIProvider({ baseURL: `${process.env.HOST}/v1`, apiKey: process.env.MGW_API_KEY, useResponses })
  for (const stream of [false, true]) {
    const outcome = await new Runner({ modelProvider: provider, tracingDisabled: true }).run(agent, prompt, { stream })
    if (stream) await outcome.completed
    check(outcome.finalOutput)
    for (const { usage } of outcome.rawResponses) count(usage.inputTokens, usage.outputTokens)
  }
}
finish()
