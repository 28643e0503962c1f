// Package registry finds the dialect of a format. It is apart from package format
// because the dialects import that.
package registry

import (
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/chat"
	"modelgateway/shared/catalog"
)

// For returns the dialect of a format; ok is false for a name that is none.
func For(f catalog.Format) (d format.Dialect, ok bool) {
	switch f {
	case catalog.Chat:
		return chat.Dialect{}, true
	}
	return nil, false
}
