import { check, count, finish, model, prompt, weather } from './task.mjs'

const found = await client.chat.completions.create({ model, messages: [{ role: 'user', content: prompt }], response_model })
check(`done: ${weather(found)}`)
count(found._meta.usage.prompt_tokens, found._meta.usage.completion_tokens)
finish()
