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
// In a stream of responses, only the events of a text have it once.
const greeting = { messages: [{ role: 'user', content: 'Hello' }] }
const whole = await openaiResponses(settings).chat(greeting)
count(whole.raw.usage.input_tokens, whole.raw.usage.output_tokens)
let streamed = ''
for await (const { delta, raw } of await openaiResponses(settings).chat({ ...greeting, stream: true })) {
  if (raw.type === 'response.output_text.delta') streamed += delta
  if (raw.type === 'response.completed') count(raw.response.usage.input_tokens, raw.response.usage.output_tokens)
}
if (!streamed || streamed !== extractText(whole.message.content)) throw new Error(`the stream has ${streamed}, the answer ${extractText(whole.message.content)}`)
finish()
