import os

from anthropic import Anthropic

client = Anthropic(base_url="https://HOST", api_key=os.environ["MGW_API_KEY"])
answer = client.messages.create(model="MODEL", max_tokens=1000, messages=[{"role": "user", "content": "Hello"}])
print(answer.content[0].text)
