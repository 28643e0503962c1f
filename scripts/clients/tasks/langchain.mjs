import { HumanMessage, ToolMessage } from '@langchain/core/messages'
import { check, count, finish, model, parameters, prompt, weather } from './task.mjs'

const settings = { model, apiKey: process.env.MGW_API_KEY, maxTokens: 1000 }
const configuration = { baseURL: `${process.env.HOST}/v1` }
for (const chosen of [
  new ChatOpenAI({ ...settings, configuration }),
  new ChatOpenAI({ ...settings, configuration, useResponsesApi: true }),
  new ChatAnthropic({ ...settings, anthropicApiUrl: process.env.HOST }),
]) {
  const bound = chosen.bindTools([{ type: 'function', function: { name: 'weather', description: 'Tells the weather.', parameters } }])
  for (const stream of [false, true]) {
    const turns = [new HumanMessage(prompt)]
    let text = ''
    while (!text) {
      let answer
      if (stream) {
        for await (const chunk of await bound.stream(turns)) answer = answer ? answer.concat(chunk) : chunk
      } else {
        answer = await bound.invoke(turns)
      }
      // In a stream of messages, LangChain adds the output of the first event, one token, to the total of the last.
      const twice = stream && chosen instanceof ChatAnthropic ? 1 : 0
      count(answer.usage_metadata.input_tokens, answer.usage_metadata.output_tokens - twice)
      turns.push(answer)
      for (const call of answer.tool_calls) turns.push(new ToolMessage({ content: weather(call.args), tool_call_id: call.id }))
      text = answer.tool_calls.length ? '' : answer.text
    }
    check(text)
  }
}
finish()
