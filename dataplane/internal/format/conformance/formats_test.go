package conformance

import (
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/chat"
	"modelgateway/dataplane/internal/format/images"
	"modelgateway/dataplane/internal/format/messages"
	"modelgateway/dataplane/internal/format/responses"
	"modelgateway/dataplane/internal/format/videos"
	"modelgateway/shared/catalogkv"
)

var dialects = map[catalogkv.Format]format.Dialect{
	catalogkv.Chat:      chat.Dialect{},
	catalogkv.Responses: responses.Dialect{},
	catalogkv.Messages:  messages.Dialect{},
	catalogkv.Images:    images.Dialect{},
	catalogkv.Videos:    videos.Dialect{},
}
