import { openaiResponses } from '@llamaindex/openai'
import { extractText, tool } from 'llamaindex'
import { check, count, finish, model, parameters, prompt, weather } from './task.mjs'

const tools = [tool({ name: 'weather', description: 'Tells the weather.', parameters, execute: weather })]
const settings = { model, apiKey: process.env.MGW_API_KEY, baseURL: `${process.env.HOST}/v1` }
for (const llm of [openai(settings), openaiResponses(settings), new Anthropic({ model, session })]) {
  let messages = [{ role: 'user', content: prompt }]
  for (;;) {
    const answer = await llm.chat({ messages, tools })
    const usage = answer.raw.usage
    count(usage.input_tokens ?? usage.prompt_tokens, usage.output_tokens ?? usage.completion_tokens)
    const calls = answer.message.options?.toolCall ?? []
    if (!calls.length) {
      check(extractText(answer.message.content))
      break
    }
    messages = [...messages, answer.message]
    for (const { id, input } of calls) {
      const result = weather(typeof input === 'string' ? JSON.parse(input) : input)
      messages.push({ role: 'user', content: result, options: { toolResult: { id, result, isError: false } } })
    }
  }
}
finish()
