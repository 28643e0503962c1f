id=$(curl -sS --fail-with-body https://HOST/v1/videos -H "Authorization: Bearer $MGW_API_KEY" \
  -H 'Content-Type: application/json' -d '{"model": "VIDEO_MODEL", "prompt": "Waves", "seconds": "4"}' |
  sed -n 's/.*"id": *"\([^"]*\)".*/\1/p')
until curl -sS --fail-with-body "https://HOST/v1/videos/$id" -H "Authorization: Bearer $MGW_API_KEY" |
  grep -Eq '"status": *"(completed|failed)"'; do sleep 1; done
curl -sS --fail-with-body "https://HOST/v1/videos/$id/content" -H "Authorization: Bearer $MGW_API_KEY" -o video.mp4
