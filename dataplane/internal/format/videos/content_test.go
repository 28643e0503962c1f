package videos

import "testing"

func TestTextIsNoContentOfAVideo(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]bool{
		"\x00\x00\x00\x18ftypmp42":         false,
		"\x1aE\xdf\xa3 webm":               false,
		"\x89PNG\r\n\x1a\n some words":     false,
		"RIFF\x10\x00\x00\x00WEBPVP8 x":    false,
		"0123456789":                       false,
		"":                                 true,
		" \r\n":                            true,
		`{"error":"x"}`:                    true,
		"\ufeff{\"error\":\"x\"}":          true,
		`"not ready"`:                      true,
		"null\n":                           true,
		"<!doctype html>":                  true,
		"The video is not ready.\r\nWait.": true,
		"видео ещё не готово":              true,
	} {
		if got := IsText([]byte(content)); got != want {
			t.Errorf("%q: got %v", content, got)
		}
	}
	for media, want := range map[string]bool{
		"video/mp4": false, "application/octet-stream": false, "": false, "Application/JSON; charset=utf-8": true,
		"application/problem+json": true, "text/plain": true, "text/event-stream": true, "application/xml": true,
	} {
		if got := IsTextType(media); got != want {
			t.Errorf("%q: got %v", media, got)
		}
	}
}
