// Package registry finds the dialect of a format. It is apart from package format
// because the dialects import that.
package registry

import (
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/chat"
	"modelgateway/dataplane/internal/format/images"
	"modelgateway/dataplane/internal/format/messages"
	"modelgateway/dataplane/internal/format/responses"
	"modelgateway/dataplane/internal/format/videos"
	"modelgateway/shared/catalogkv"
)

// For returns the dialect of a format; ok is false for a name that is none.
func For(f catalogkv.Format) (d format.Dialect, ok bool) {
	switch f {
	case catalogkv.Chat:
		return chat.Dialect{}, true
	case catalogkv.Responses:
		return responses.Dialect{}, true
	case catalogkv.Messages:
		return messages.Dialect{}, true
	case catalogkv.Images:
		return images.Dialect{}, true
	case catalogkv.Videos:
		return videos.Dialect{}, true
	}
	return nil, false
}
