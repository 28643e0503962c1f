import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { isStepCount, jsonSchema, streamText, tool } from 'ai'
import { check, count, faults, finish, model, parameters, prompt, weather } from './task.mjs'

const { HOST, MGW_API_KEY: apiKey } = process.env
const compatible = createOpenAICompatible({ name: 'mgw', baseURL: `${HOST}/v1`, apiKey, includeUsage: true })
const tools = { weather: tool({ description: 'Tells the weather.', inputSchema: jsonSchema(parameters), execute: weather }) }
const providerOptions = { openai: { store: false } }
for (const chosen of [openai(model), openai.chat(model), anthropic(model), compatible(model)]) {
  for (const ask of [generateText, streamText]) {
    const result = await ask({ model: chosen, prompt, tools, stopWhen: isStepCount(3), providerOptions })
    check(await result.text)
    const steps = await result.steps
    for (const step of steps) count(step.usage.inputTokens, step.usage.outputTokens)
  }
}
await generateText({ model: openai.chat(faults.limited), prompt, maxRetries: 5 })
finish()
