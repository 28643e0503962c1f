package billingapi

import (
	"testing"

	"modelgateway/shared/event"
)

// The error message of a provider can quote the prompt, so only its code is
// shown, and only if it looks like a code.
func TestVideoErrorShowsOnlyTheCode(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ status, own, object, want string }{
		"given up":         {event.VideoFailed, "its provider does not answer", `{"error":{"code":"x"}}`, "its provider does not answer"},
		"a code":           {event.VideoFailed, "", `{"error":{"code":"content_policy.violation-2","message":"a red balloon"}}`, "the provider reports content_policy.violation-2"},
		"words for a code": {event.VideoFailed, "", `{"error":{"code":"a red balloon"}}`, ""},
		"a long code":      {event.VideoFailed, "", `{"error":{"code":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}`, ""},
		"no code":          {event.VideoFailed, "", `{"error":{"message":"a red balloon"}}`, ""},
		"no object":        {event.VideoFailed, "", `{"error":"a red balloon"}`, ""},
		"not failed":       {event.VideoCompleted, "", `{"error":{"code":"x"}}`, ""},
	} {
		if got := whyFailed(&event.Video{Status: tt.status, Error: tt.own, Object: []byte(tt.object)}); got != tt.want {
			t.Errorf("%s: got %q; want %q", name, got, tt.want)
		}
	}
}
